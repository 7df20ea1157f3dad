use super::*;
use crate::memory::Ranges;

const STATE: u64 = 0xaaaa_0000;

/// Fake threads: each has a page below its thread pointer, one above, a `dtv` and two blocks.
struct Fake {
    pages: Vec<(u64, Vec<u8>)>,
    threads: Vec<ThreadState>,
}

const fn pointer(thread: u64) -> u64 {
    0x10_0000 * (thread + 1)
}

const fn dtv(thread: u64) -> u64 {
    pointer(thread) + 0x2000
}

const fn block(thread: u64) -> u64 {
    pointer(thread) + 0x4000
}

impl Fake {
    fn new(count: u64) -> Self {
        let mut fake = Self {
            pages: Vec::new(),
            threads: Vec::new(),
        };
        for thread in 0..count {
            let base = pointer(thread);
            fake.pages.push((base - 0x1000, vec![0; 0x2000]));
            fake.pages.push((base + 0x2000, vec![0; 0x4000]));
            fake.threads.push(ThreadState {
                addr: Addr(STATE + thread),
                thread_id: base,
                native_thread_id: thread,
                interp: Addr(1),
            });
            // Module 1 below the thread pointer, module 2 not there yet, module 3 in a block.
            fake.set(base + 8, dtv(thread) + 16);
            fake.set(dtv(thread), 3);
            fake.set(dtv(thread) + 32, base - 0x80);
            fake.set(dtv(thread) + 48, u64::MAX);
            fake.set(dtv(thread) + 64, block(thread));
        }
        fake
    }

    fn set(&mut self, addr: u64, word: u64) {
        let inside =
            |page: &&mut (u64, Vec<u8>)| (page.0..page.0 + page.1.len() as u64).contains(&addr);
        let page = self.pages.iter_mut().find(inside).expect("a fake address");
        page.1[(addr - page.0) as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }

    fn learn(&self, is_exe: bool) -> Vec<TstatePath> {
        let mut memory = Ranges::new();
        for (addr, bytes) in &self.pages {
            memory.push(Addr(*addr), bytes);
        }
        let facts = TlsFacts {
            tls: Some(Tls {
                size: 0x20,
                align: 16,
            }),
            is_exe,
        };
        learn(&memory, &self.threads, facts)
    }
}

#[test]
fn the_current_state_comes_before_the_one_that_stays() {
    let mut fake = Fake::new(3);
    for thread in 0..3 {
        fake.set(pointer(thread) - 0x10, STATE + thread);
        fake.set(pointer(thread) + 0x328, STATE + thread);
    }
    // As in 3.15: both are variables. The other threads are without GIL.
    fake.set(pointer(1) - 8, STATE + 1);
    assert_eq!(
        fake.learn(true),
        [path(&[-8]), path(&[-0x10]), path(&[0x328])]
    );
}

#[test]
fn a_place_that_is_wrong_in_one_thread_is_no_way() {
    let mut fake = Fake::new(2);
    for thread in 0..2 {
        fake.set(pointer(thread) + 0x318, STATE + thread);
        fake.set(pointer(thread) - 8, STATE + thread);
    }
    fake.set(pointer(1) - 8, STATE);
    assert_eq!(fake.learn(true), [path(&[0x318])]);
}

#[test]
fn a_thread_without_any_way_vetoes_nothing() {
    let mut fake = Fake::new(2);
    fake.set(pointer(0) - 8, STATE);
    fake.set(pointer(1) - 8, 0x1234);
    assert_eq!(fake.learn(true), [path(&[-8])]);
}

#[test]
fn finds_keys_beyond_the_first_block() {
    let mut fake = Fake::new(1);
    let second = block(0) + 0x1000;
    fake.set(pointer(0) + 0x518, second);
    fake.set(second + 16 * 5 + 8, STATE);
    assert_eq!(fake.learn(true), [path(&[0x518, 88])]);
}

#[test]
fn finds_blocks_behind_the_vector_within_their_size() {
    let mut fake = Fake::new(2);
    fake.set(block(0) + 8, STATE);
    fake.set(block(1) + 0x20, STATE + 1);
    assert_eq!(
        fake.learn(false),
        [path(&[8, 48, 8])],
        "beyond the block is not searched"
    );
}

#[test]
fn the_stack_below_is_not_searched() {
    let mut fake = Fake::new(1);
    fake.set(pointer(0) - 0x28, STATE);
    assert_eq!(
        fake.learn(true),
        [],
        "the program's own block has 0x20 bytes"
    );
    assert_eq!(
        fake.learn(false),
        [path(&[-0x28])],
        "a library's lies somewhere below"
    );
    fake.set(pointer(0) - 0x28, 0);
    fake.set(pointer(0) - 0x500, STATE);
    assert_eq!(fake.learn(false), []);
}

#[test]
fn two_interpreters_share_a_thread() {
    let mut fake = Fake::new(1);
    let other = ThreadState {
        addr: Addr(STATE + 9),
        ..fake.threads[0]
    };
    fake.threads.push(other);
    fake.set(pointer(0) - 8, STATE + 9);
    fake.set(pointer(0) + 0x318, STATE);
    assert_eq!(fake.learn(true), [path(&[-8]), path(&[0x318])]);
}

#[test]
fn the_widest_key_is_kept_among_many() {
    let mut fake = Fake::new(2);
    for slot in 1..=3 {
        fake.set(pointer(0) - 8 * slot, STATE);
    }
    for thread in 0..2 {
        fake.set(pointer(thread) + 0x318, STATE + thread);
    }
    let paths = fake.learn(true);
    assert_eq!(paths, [path(&[-8]), path(&[-16]), path(&[0x318])]);
}

#[test]
fn hostile_numbers_end() {
    let mut fake = Fake::new(1);
    fake.set(dtv(0), u64::MAX);
    fake.set(pointer(0) + 8, u64::MAX - 3);
    fake.threads.push(ThreadState {
        thread_id: u64::MAX,
        ..fake.threads[0]
    });
    fake.threads.push(ThreadState {
        thread_id: 3,
        ..fake.threads[0]
    });
    assert_eq!(fake.learn(false), []);
    assert_eq!(
        learn(
            &Ranges::new(),
            &[],
            TlsFacts {
                tls: None,
                is_exe: true
            }
        ),
        []
    );
}
