//! The thread states that an interpreter lists.

use std::collections::HashSet;

use crate::layout::Layout;
use crate::memory::{Addr, Memory};

/// Interpreters of a process that are looked at.
const INTERPRETERS_MAX: usize = 256;
/// Thread states of a process that are looked at.
const THREADS_MAX: usize = 8192;
/// Readings of lists that tear.
const TRIES: usize = 8;
/// Most bytes read of one thread state.
const STATE_MAX: u64 = 1024;

/// One `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Its address.
    pub addr: Addr,
    /// `thread_id`: `pthread_self()`, which on x86-64 Linux is the thread's FS base. 0 while no
    /// thread uses the state.
    pub thread_id: u64,
    /// `native_thread_id`, a number of the target's own PID namespace.
    pub native_thread_id: u64,
    /// The `PyInterpreterState` it belongs to.
    pub interp: Addr,
}

/// What the interpreters of a process list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Thread states, newest first of each interpreter: at most 8,192 of 256 interpreters.
    pub states: Vec<ThreadState>,
    /// Whether all lists were followed to their ends.
    pub is_whole: bool,
}

/// The thread states of all interpreters of the runtime at `runtime`.
///
/// The lists change while they are read: one that tears is read again, some times, and then as far
/// as it goes. A state is listed only if it names the interpreter that lists it.
#[must_use]
pub fn threads(memory: &dyn Memory, layout: &Layout, runtime: Addr) -> Listed {
    let mut most = Listed::default();
    for _ in 0..TRIES {
        let mut states = Vec::new();
        let is_whole = all(memory, layout, runtime, &mut states);
        if is_whole || states.len() > most.states.len() {
            most = Listed { states, is_whole };
        }
        if is_whole {
            break;
        }
    }
    most
}

/// Lists the states of all interpreters, and tells whether no list was torn.
fn all(memory: &dyn Memory, layout: &Layout, runtime: Addr, found: &mut Vec<ThreadState>) -> bool {
    let mut is_whole = true;
    let mut seen = HashSet::new();
    let mut interp = pointer(memory, runtime.add(layout.runtime.interpreters_head));
    while let Some(at) = interp {
        if seen.len() >= INTERPRETERS_MAX || !seen.insert(at) {
            return false;
        }
        is_whole &= list(memory, layout, at, found);
        interp = pointer(memory, at.add(layout.interp.next));
    }
    is_whole
}

/// Whether a thread state that was listed still is the same thread's.
#[must_use]
pub fn is_still(memory: &dyn Memory, layout: &Layout, state: &ThreadState) -> bool {
    read(memory, layout, state.addr).is_some_and(|(now, _)| now == *state)
}

/// Lists the states of one interpreter, and tells whether the list was followed to its end.
///
/// A state that was just unlinked has no next one, either (3.13+): the last one must have been
/// reached from the one before it, the only one from the list's head.
fn list(memory: &dyn Memory, layout: &Layout, interp: Addr, found: &mut Vec<ThreadState>) -> bool {
    let head = || pointer(memory, interp.add(layout.interp.threads_head));
    let mut seen = HashSet::new();
    let mut before = Addr::NULL;
    let mut next = head();
    while let Some(addr) = next {
        if found.len() >= THREADS_MAX || !seen.insert(addr) {
            return false;
        }
        let Some((state, links)) = read(memory, layout, addr) else {
            return false;
        };
        if state.interp != interp {
            return false;
        }
        found.push(state);
        next = Some(links.next).filter(|next| !next.is_null());
        let is_linked = match before {
            Addr::NULL => head() == Some(addr),
            before => links.prev == before,
        };
        if next.is_none() && !is_linked {
            return false;
        }
        before = addr;
    }
    true
}

/// A thread state's neighbours in its list.
struct Links {
    prev: Addr,
    next: Addr,
}

/// A thread state and its neighbours.
fn read(memory: &dyn Memory, layout: &Layout, addr: Addr) -> Option<(ThreadState, Links)> {
    let thread = &layout.thread;
    let fields = [
        thread.prev,
        thread.next,
        thread.interp,
        thread.thread_id,
        thread.native_thread_id,
    ];
    let size = fields
        .iter()
        .max()?
        .checked_add(8)
        .filter(|&size| size <= STATE_MAX)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    memory.read(addr, &mut bytes).ok()?;
    let word = |offset: u64| {
        let word = bytes.get(usize::try_from(offset).ok()?..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    };
    let state = ThreadState {
        addr,
        thread_id: word(thread.thread_id)?,
        native_thread_id: word(thread.native_thread_id)?,
        interp: Addr(word(thread.interp)?),
    };
    let links = Links {
        prev: Addr(word(thread.prev)?),
        next: Addr(word(thread.next)?),
    };
    Some((state, links))
}

fn pointer(memory: &dyn Memory, addr: Addr) -> Option<Addr> {
    memory.addr(addr).ok().filter(|pointer| !pointer.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Version, v3_12};
    use crate::memory::Ranges;

    const RUNTIME: u64 = 0x1000;
    const INTERP: u64 = 0x2000;

    fn layout() -> Layout {
        v3_12(Version(0x030c_01f0))
    }

    /// One page that holds these words.
    fn page(words: &[(u64, u64)]) -> Vec<u8> {
        let mut page = vec![0; 0x1000];
        for (offset, word) in words {
            page[*offset as usize..][..8].copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    fn thread(layout: &Layout, interp: u64, next: u64, id: u64) -> Vec<u8> {
        let thread = &layout.thread;
        let native = (thread.native_thread_id, id + 1);
        page(&[
            (thread.interp, interp),
            (thread.next, next),
            (thread.thread_id, id),
            native,
        ])
    }

    fn read(layout: &Layout, pages: &[(u64, Vec<u8>)]) -> Vec<ThreadState> {
        let mut memory = Ranges::new();
        for (addr, bytes) in pages {
            memory.push(Addr(*addr), bytes);
        }
        threads(&memory, layout, Addr(RUNTIME)).states
    }

    #[test]
    fn lists_every_thread_of_every_interpreter() {
        let l = layout();
        let found = read(
            &l,
            &[
                (RUNTIME, page(&[(l.runtime.interpreters_head, INTERP)])),
                (
                    INTERP,
                    page(&[(l.interp.next, 0x5000), (l.interp.threads_head, 0x3000)]),
                ),
                (0x3000, thread(&l, INTERP, 0x4000, 70)),
                (0x4000, thread(&l, INTERP, 0, 80)),
                (0x5000, page(&[(l.interp.threads_head, 0x6000)])),
                (0x6000, thread(&l, 0x5000, 0, 70)),
            ],
        );
        let expected = [
            (0x3000, 70, INTERP),
            (0x4000, 80, INTERP),
            (0x6000, 70, 0x5000),
        ];
        let expected = expected.map(|(addr, thread_id, interp)| ThreadState {
            addr: Addr(addr),
            thread_id,
            native_thread_id: thread_id + 1,
            interp: Addr(interp),
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn ends_on_circles_gaps_and_strangers() {
        let l = layout();
        let runtime = (RUNTIME, page(&[(l.runtime.interpreters_head, INTERP)]));
        let heads = [(l.interp.next, INTERP), (l.interp.threads_head, 0x3000)];
        let interp = (INTERP, page(&heads));
        let circle = (0x3000, thread(&l, INTERP, 0x3000, 70));
        assert_eq!(
            read(&l, &[runtime.clone(), interp.clone(), circle]).len(),
            1
        );
        let gap = (0x3000, thread(&l, INTERP, 0x9000, 70));
        assert_eq!(read(&l, &[runtime.clone(), interp.clone(), gap]).len(), 1);
        let stranger = (0x3000, thread(&l, 0x7777, 0, 70));
        assert_eq!(read(&l, &[runtime, interp, stranger]).len(), 0);
        assert_eq!(read(&l, &[]).len(), 0);
    }

    #[test]
    fn a_list_that_tears_says_so() {
        let l = layout();
        let runtime = page(&[(l.runtime.interpreters_head, INTERP)]);
        let interp = page(&[(l.interp.threads_head, 0x3000)]);
        let listed = |next, second_prev: u64| {
            let mut memory = Ranges::new();
            let first = thread(&l, INTERP, next, 70);
            let mut second = thread(&l, INTERP, 0, 80);
            second[l.thread.prev as usize..][..8].copy_from_slice(&second_prev.to_le_bytes());
            memory.push(Addr(RUNTIME), &runtime);
            memory.push(Addr(INTERP), &interp);
            memory.push(Addr(0x3000), &first);
            memory.push(Addr(0x4000), &second);
            let listed = threads(&memory, &l, Addr(RUNTIME));
            (listed.states.len(), listed.is_whole)
        };
        assert_eq!(listed(0, 0), (1, true));
        assert_eq!(listed(0x9000, 0), (1, false));
        assert_eq!(listed(0x3000, 0), (1, false));
        assert_eq!(listed(0x4000, 0x3000), (2, true));
        // Unlinked since.
        assert_eq!(listed(0x4000, 0), (2, false));
    }

    #[test]
    fn a_state_that_another_thread_took_is_not_the_same() {
        let l = layout();
        let state = ThreadState {
            addr: Addr(0x3000),
            thread_id: 70,
            native_thread_id: 71,
            interp: Addr(INTERP),
        };
        for (id, is_same) in [(70, true), (80, false)] {
            let now = thread(&l, INTERP, 0, id);
            let mut memory = Ranges::new();
            memory.push(Addr(0x3000), &now);
            assert_eq!(is_still(&memory, &l, &state), is_same, "{id}");
        }
        assert!(!is_still(&Ranges::new(), &l, &state));
    }
}
