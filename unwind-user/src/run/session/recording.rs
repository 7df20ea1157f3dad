//! What a session does to be recorded.

use std::io;
use std::path::{Path, PathBuf};

use super::Session;
use crate::layout::Layout;
use crate::memory::{Memory, Process, Tee};
use crate::pipeline::{Pipeline, Target};
use crate::profile::{ProcessKey, Profile};
use crate::record::{Described, End, Event, Keep, Opened, Recorder, Start};
use crate::run::output::{Pending, WriteError};

/// The recording that a session writes.
#[derive(Debug)]
pub(super) struct Recording {
    recorder: Recorder<Pending>,
    path: PathBuf,
}

impl Recording {
    /// Records a record of the ring that the pipeline has taken.
    pub(super) fn keep(&self, bytes: &[u8], pipeline: &Pipeline) {
        self.recorder
            .record(bytes, |pid| pipeline.target(pid).map(Target::layout));
    }

    /// Records that the pipeline ended a batch at this time.
    pub(super) fn end_batch(&self, now: u64) {
        self.recorder.batch(now);
    }
}

impl Session {
    /// Records from now on. Call before a process is attached.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn record(&mut self, path: &Path, keep: Keep) -> Result<(), WriteError> {
        let profile = self.pipeline.profile();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let start = Start {
            mode: profile.mode,
            period_ns: profile.period_ns,
            start_ns: profile.start_ns,
            kernel: kernel.trim_end().to_owned(),
            unwind: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let recorder = Recorder::new(Pending::create(path)?, start, keep);
        self.recording = Some(Recording {
            recorder,
            path: path.to_owned(),
        });
        Ok(())
    }

    /// The memory of a program about to be opened, as the pipeline is to see it.
    pub(super) fn observed(
        &self,
        pid: u32,
        image: u32,
        layout: &Layout,
        memory: Process,
    ) -> Box<dyn Memory> {
        let Some(Recording { recorder, .. }) = &self.recording else {
            return Box::new(memory);
        };
        let opened = Opened {
            pid,
            image,
            layout: layout.clone(),
        };
        recorder.event(&Event::Opened(Box::new(opened)));
        Box::new(Tee::new(memory, recorder.process(pid, layout)))
    }

    /// Records what the profile knows of a process by now.
    pub(super) fn record_names(&self, process: ProcessKey) {
        if let Some(Recording { recorder, .. }) = &self.recording {
            recorder.event(&Event::Described(described(
                self.pipeline.profile(),
                process,
            )));
        }
    }

    /// Records that no more samples of a program are taken.
    pub(super) fn record_close(&self, pid: u32) {
        if let Some(Recording { recorder, .. }) = &self.recording {
            recorder.event(&Event::Closed(pid));
        }
    }

    /// Whether the recording cannot be gone on with; [`Self::finish_recording`] tells why.
    #[must_use]
    pub fn is_recording_broken(&self) -> bool {
        let recording = self.recording.as_ref();
        recording.is_some_and(|recording| recording.recorder.is_broken())
    }

    /// Shows what is recorded so far at its path, and goes on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn show_recording(&self) -> Result<(), WriteError> {
        let recorder = self.recording.as_ref().map(|recording| &recording.recorder);
        recorder
            .and_then(|recorder| recorder.with_output(Pending::show))
            .unwrap_or(Ok(()))
    }

    /// Ends the recording, with what the profile knows by now, and puts it in its place.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish_recording(&mut self) -> Result<(), WriteError> {
        let profile = self.pipeline.profile();
        for process in profile.processes.keys() {
            self.record_names(*process);
        }
        let Some(Recording { recorder, path }) = self.recording.take() else {
            return Ok(());
        };
        let end = End {
            duration_ns: profile.duration_ns,
            outcomes: profile.outcomes.clone(),
            empty_reason: profile.empty_reason.clone(),
        };
        match recorder.finish(Some(end)) {
            Ok(out) => out.commit(),
            // A reader that went away is no error, as for every other format.
            Err(source) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(source) => Err(WriteError { path, source }),
        }
    }
}

/// What a profile knows of one process.
fn described(profile: &Profile, process: ProcessKey) -> Described {
    let info = profile.processes.get(&process);
    let threads = profile
        .threads
        .iter()
        .filter(|(thread, _)| thread.process() == process);
    let named = threads.filter_map(|(thread, info)| Some((thread.tid, info.name.clone()?)));
    Described {
        pid: process.pid,
        image: process.image,
        command: info.map(|info| info.command.clone()).unwrap_or_default(),
        python: info.map(|info| info.python.clone()),
        threads: named.collect(),
    }
}
