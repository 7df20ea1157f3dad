//! Which program a process runs.

use crate::memory::{Addr, Memory as _, Process};
use crate::process::{self, Stat};

/// `AT_RANDOM` of `linux/auxvec.h`: where 16 random bytes lie, others after each exec.
const AT_RANDOM: u64 = 25;

/// Tells a program from the one before it in the same process. A forked child's differs from its
/// parent's in nothing but the start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// When its process began, in ticks since boot.
    start_time: u64,
    /// Bottom of the first stack, mostly another one each time; 0 where we may not know it.
    stack: u64,
    /// The random bytes that the kernel gave it; none where we may not read them.
    random: Option<Random>,
}

/// The bytes that `AT_RANDOM` leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Random {
    addr: Addr,
    bytes: [u8; 16],
}

/// What a look at a process tells of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It runs this one.
    Program(Image),
    /// Nothing: its first thread is ending or has ended, with which we would know it, but others
    /// have not.
    Unknown,
    /// It has ended.
    Ended,
}

/// What became of a process since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Exec,
    Exit,
}

impl Seen {
    /// Looks at the process `pid` now.
    pub(super) fn of(pid: u32) -> Self {
        let pid = pid.cast_signed();
        let before = Stat::of(pid).ok();
        let random = Random::of(pid);
        match Self::with(pid, random) {
            // It made an exec while we looked.
            Self::Program(image) if before.is_none_or(|before| before.stack != image.stack) => {
                Self::Unknown
            }
            seen => seen,
        }
    }

    /// Looks whether the process `pid` still runs the program `image`.
    pub(super) fn again(pid: u32, image: &Image) -> Self {
        let again = image
            .random
            .and_then(|it| Random::at(pid.cast_signed(), it.addr));
        match Self::with(pid.cast_signed(), again) {
            Self::Program(now) if now != *image => Self::of(pid),
            seen => seen,
        }
    }

    fn with(pid: i32, random: Option<Random>) -> Self {
        match Stat::of(pid) {
            Err(_) => Self::Ended,
            Ok(stat) if stat.has_ended() && !process::is_live(pid) => Self::Ended,
            Ok(stat) if stat.has_ended() => Self::Unknown,
            Ok(stat) => Self::Program(Image {
                start_time: stat.start_time,
                stack: stat.stack,
                random,
            }),
        }
    }

    pub(super) const fn image(self) -> Option<Image> {
        match self {
            Self::Program(image) => Some(image),
            Self::Unknown | Self::Ended => None,
        }
    }
}

impl Image {
    /// The same program in a child that began when `child` did.
    pub(super) const fn inherited(self, child: &Self) -> Self {
        Self {
            start_time: child.start_time,
            ..self
        }
    }

    /// What a look tells beyond this.
    pub(super) fn change(&self, seen: Seen) -> Change {
        match seen {
            Seen::Unknown => Change::None,
            Seen::Program(now) if now == *self => Change::None,
            Seen::Program(now) if now.start_time == self.start_time => Change::Exec,
            // Its number may be another process's by now.
            Seen::Program(_) | Seen::Ended => Change::Exit,
        }
    }

    #[cfg(test)]
    pub(super) const fn example() -> Self {
        Self {
            start_time: 7,
            stack: 0x7fff_0000,
            random: None,
        }
    }

    /// After an exec of the same program with the same arguments, where addresses are not random.
    #[cfg(test)]
    pub(super) const fn after_exec(self) -> Self {
        Self {
            random: Some(Random {
                addr: Addr(0x7fff_1000),
                bytes: [7; 16],
            }),
            ..self
        }
    }

    #[cfg(test)]
    pub(super) const fn of_another_process(self) -> Self {
        Self {
            start_time: self.start_time + 1,
            ..self
        }
    }
}

impl Random {
    /// Those of the program that a process runs now.
    fn of(pid: i32) -> Option<Self> {
        let vector = std::fs::read(format!("/proc/{pid}/auxv")).ok()?;
        let words = vector.as_chunks().0.iter().copied();
        let words: Vec<u64> = words.map(u64::from_ne_bytes).collect();
        let mut entries = words.as_chunks().0.iter();
        let [_, addr] = *entries.find(|[tag, _]| *tag == AT_RANDOM)?;
        Self::at(pid, Addr(addr))
    }

    fn at(pid: i32, addr: Addr) -> Option<Self> {
        let mut bytes = [0; 16];
        Process::new(pid).read(addr, &mut bytes).ok()?;
        Some(Self { addr, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn another_program_is_told_from_another_process() {
        let image = Image::example();
        let change = |seen| image.change(seen);
        assert_eq!(change(Seen::Program(image)), Change::None);
        assert_eq!(change(Seen::Program(image.after_exec())), Change::Exec);
        let other = image.of_another_process();
        assert_eq!(change(Seen::Program(other)), Change::Exit);
        assert_eq!(change(Seen::Ended), Change::Exit);
        assert_eq!(change(Seen::Unknown), Change::None);
    }

    #[test]
    fn we_are_one_program_all_the_time() {
        let seen = Seen::of(std::process::id());
        let image = seen.image().expect("we run");
        assert!(image.random.is_some() && image.stack > 0);
        assert_eq!(Seen::of(std::process::id()), seen);
        assert_eq!(Seen::again(std::process::id(), &image), seen);
        assert_eq!(Seen::of(i32::MAX as u32), Seen::Ended);
    }

    /// A shell says a line before and after it becomes the same shell with the same arguments.
    #[test]
    fn the_same_program_once_more_is_seen_where_addresses_are_not_random() {
        use std::io::{BufRead as _, BufReader, Write as _};
        let script = "echo; read line; test $line = end || exec setarch -R sh -c \"$0\" \"$0\"";
        let mut child = Command::new("setarch")
            .args(["-R", "sh", "-c", script, script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("setarch (util-linux)");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut input = child.stdin.take().expect("piped");
        let mut after = |line: &str, image: Option<Image>| {
            lines.next().expect("a line").expect("readable");
            let seen = image.map_or_else(
                || Seen::of(child.id()),
                |image| Seen::again(child.id(), &image),
            );
            input.write_all(line.as_bytes()).expect("it reads");
            seen.image().expect("it waits")
        };
        let first = after("more\n", None);
        let second = after("more\n", Some(first));
        let third = after("end\n", Some(second));
        assert_eq!(second.stack, third.stack, "addresses are not random");
        assert_eq!(first.change(Seen::Program(second)), Change::Exec);
        assert_eq!(second.change(Seen::Program(third)), Change::Exec);
        assert!(child.wait().expect("our child").success());
    }

    /// The first thread of a process ends by itself; another one goes on until its input ends.
    #[test]
    fn a_process_without_its_first_thread_has_made_no_exec() {
        use std::io::Read as _;
        let program = "import threading, sys, ctypes
def wait():
    import time
    while open(f'/proc/self/task/{threading.main_thread().native_id}/stat').read().split()[2] != 'Z':
        time.sleep(0.001)
    print(flush=True)
    sys.stdin.read()
threading.Thread(target=wait).start()
ctypes.CDLL(None).syscall(60, 0)";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3");
        let mut byte = [0];
        let mut output = child.stdout.take().expect("piped");
        output.read_exact(&mut byte).expect("its first thread ends");
        assert_eq!(Seen::of(child.id()), Seen::Unknown);
        let change = Image::example().change(Seen::of(child.id()));
        assert_eq!(change, Change::None);
        drop(child.stdin.take());
        child.wait().expect("our child");
    }
}
