//! Means of noisy pairs.

/// A mean and its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

const RESAMPLES: usize = 4000;

/// The mean of the middle four fifths of `differences`, with a bootstrap interval. The ends are
/// windows in which something else ran.
pub(crate) fn estimate(differences: &[f64], random: &mut Random) -> Estimate {
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = differences
                .iter()
                .map(|_| differences[random.below(differences.len())]);
            trimmed_mean(drawn.collect())
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Estimate {
        mean: trimmed_mean(differences.to_vec()),
        low: means[RESAMPLES / 40],
        high: means[RESAMPLES - RESAMPLES / 40],
    }
}

fn trimmed_mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 10;
    let middle = &values[cut..values.len() - cut];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// xorshift64*: the order of windows need not be more random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}
