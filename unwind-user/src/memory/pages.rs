//! Which pages of a live process can be read without waiting for anyone.
//!
//! A page that is not there yet is provided when it is read: by the kernel, or, where a userfaultfd
//! or a file system in user space stands behind it, by a process that may never do so. Reading it
//! waits in the kernel, and only a signal that ends us ends that (`handle_userfault`, Linux 4.3+).

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

use super::Addr;

/// Bit of an entry of `/proc/PID/pagemap` (Linux: `Documentation/admin-guide/mm/pagemap.rst`): the
/// page is in memory. (That it is in swap is said of marks of a userfaultfd, too.)
const THERE: u64 = 1 << 63;
/// No address of a process has these bits.
const NO_ADDRESS: u64 = 0xff << 56;
/// Entries read in one call.
const ENTRIES: usize = 64;
/// Pages that are remembered for a moment: many small reads are of few pages.
const RECENT: usize = 64;
/// No page has this number.
const NO_PAGE: u64 = u64::MAX;

static PAGE: LazyLock<u64> = LazyLock::new(|| {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    page.and_then(|page| u64::try_from(page).ok())
        .unwrap_or(4096)
});

/// The pages of one process.
#[derive(Debug)]
pub(super) struct Pages {
    pid: i32,
    /// Its `/proc/PID/pagemap`; that of the program which ran when it was opened.
    map: RefCell<Option<File>>,
    recent: Recent,
}

/// Pages that were there a tick of the kernel's coarse clock ago at most, 1 to 10 ms.
#[derive(Debug)]
struct Recent {
    tick: Cell<Option<TimeSpec>>,
    pages: [Cell<u64>; RECENT],
}

impl Recent {
    const fn new() -> Self {
        Self {
            tick: Cell::new(None),
            pages: [const { Cell::new(NO_PAGE) }; RECENT],
        }
    }

    /// Forgets what is not recent any more.
    fn tick(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).ok();
        if now.is_none() || self.tick.replace(now) != now {
            self.pages.iter().for_each(|page| page.set(NO_PAGE));
        }
    }

    fn slot(&self, page: u64) -> &Cell<u64> {
        &self.pages[page as usize % RECENT]
    }

    fn has(&self, page: u64) -> bool {
        self.slot(page).get() == page
    }

    fn add(&self, page: u64) {
        self.slot(page).set(page);
    }
}

impl Pages {
    pub(super) const fn new(pid: i32) -> Self {
        Self {
            pid,
            map: RefCell::new(None),
            recent: Recent::new(),
        }
    }

    /// Whether reading these bytes may have to wait, as far as can be told: the process can take a
    /// page away after we looked, and a kernel without `CONFIG_PROC_PAGE_MONITOR` tells nothing.
    pub(super) fn may_wait(&self, addr: Addr, len: usize) -> bool {
        match self.are_there(addr, len) {
            Ok(are_there) => !are_there,
            // No such file: no such process, most likely. If it cannot be opened, we are careful.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn are_there(&self, addr: Addr, len: usize) -> io::Result<bool> {
        let end = addr.0.saturating_add(len.saturating_sub(1) as u64);
        if end & NO_ADDRESS != 0 {
            // Nothing is mapped there, so nobody is waited for.
            return Ok(true);
        }
        let (mut next, last) = (addr.0 / *PAGE, end / *PAGE);
        self.recent.tick();
        while next <= last {
            if self.recent.has(next) {
                next += 1;
                continue;
            }
            let mut entries = [0; 8 * ENTRIES];
            let count = usize::try_from(last - next + 1).map_or(ENTRIES, |left| left.min(ENTRIES));
            let read = self.entries(&mut entries[..8 * count], next)?;
            if read == 0 {
                return Ok(false);
            }
            let (entries, _) = entries[..8 * read].as_chunks();
            for entry in entries {
                if u64::from_le_bytes(*entry) & THERE == 0 {
                    return Ok(false);
                }
                self.recent.add(next);
                next += 1;
            }
        }
        Ok(true)
    }

    /// Reads entries from that of `page` on; returns how many.
    fn entries(&self, into: &mut [u8], page: u64) -> io::Result<usize> {
        let mut map = self.map.borrow_mut();
        if let Some(map) = &*map {
            let read = map.read_at(into, 8 * page)? / 8;
            if read > 0 {
                return Ok(read);
            }
            // Its program has ended, and the process may have become another.
        }
        let opened = File::open(format!("/proc/{}/pagemap", self.pid))?;
        let read = opened.read_at(into, 8 * page)? / 8;
        *map = Some(opened);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::prctl::set_thp_disable;

    use super::*;

    #[test]
    fn what_is_there_is_told_from_what_is_not_yet() {
        set_thp_disable(true).expect("Linux 3.15 or newer");
        // No thread had a stack as large before, so the kernel provides all of it page by page.
        let thread = std::thread::Builder::new().stack_size(64 << 20);
        let looks = thread.spawn(|| {
            let used = std::hint::black_box([1_u8; 64 << 10]);
            let here = Addr(used.as_ptr().addr() as u64);
            let unused = here.add((-(32_i64 << 20)).cast_unsigned());
            let pages = Pages::new(std::process::id().cast_signed());
            assert!(!pages.may_wait(here, used.len()));
            assert!(!pages.may_wait(here.add(7), 1));
            assert!(pages.may_wait(unused, 1));
            assert!(pages.may_wait(unused, 33 << 20), "the first of many");
            let below = here.add((-(2_i64 << 20)).cast_unsigned());
            assert!(pages.may_wait(below, 2 << 20), "some of many");
        });
        looks.expect("a thread").join().expect("as it should be");
    }

    #[test]
    fn nobody_is_waited_for_where_nothing_can_be() {
        let ours = Pages::new(std::process::id().cast_signed());
        assert!(!ours.may_wait(Addr(u64::MAX - 3), 8));
        assert!(!ours.may_wait(Addr(u64::MAX - 8192), 8));
        let nobody = Pages::new(i32::MAX);
        assert!(!nobody.may_wait(Addr(4096), 8));
    }
}
