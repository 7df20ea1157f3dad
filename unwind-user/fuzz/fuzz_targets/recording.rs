//! Any bytes as a recording: replayed and copied, never believed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unwind_user::format::{self, Format, Options};
use unwind_user::record::{copy_scrubbed, replay};

fuzz_target!(|bytes: &[u8]| {
    let copied = copy_scrubbed(bytes, std::io::sink());
    let replayed = replay(bytes);
    assert_eq!(copied.is_ok(), replayed.is_ok());
    if let Ok(replayed) = replayed {
        let mut text = Vec::new();
        format::write(
            Format::Folded,
            &replayed.profile,
            &Options::default(),
            &mut text,
        )
        .expect("memory takes it");
    }
});
