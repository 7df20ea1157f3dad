//! Code objects, kept from thread to thread.

use std::collections::HashMap;
use std::rc::Rc;

use super::thread::{Frame, Function};
use crate::layout::Layout;
use crate::memory::{Addr, Memory};
use crate::python::code::{Code, read_code};
use crate::python::frame::RawFrame;
use crate::python::identity::{CodeIdentity, read_identities};

/// Bytes of names and line tables that are kept; one too many, and all are dropped.
const BYTES_MAX: usize = 32 << 20;

/// Code objects of one process by address. An equal identity means the same object: from 3.12 on
/// that is proved, on 3.11 it is a fingerprint ([`crate::layout::Identity`]).
#[derive(Debug, Default)]
pub(super) struct Codes {
    known: HashMap<Addr, (Code, Rc<Function>)>,
    bytes: usize,
}

impl Codes {
    /// Appends what frames mean, in their order, without those that Python hides. Their thread must
    /// hold still: its frames keep their code objects alive.
    pub(super) fn resolve(
        &mut self,
        memory: &dyn Memory,
        layout: &Layout,
        raw: &[RawFrame],
        frames: &mut Vec<Frame>,
    ) {
        let mut addrs: Vec<Addr> = raw.iter().map(|frame| frame.code).collect();
        addrs.retain(|addr| !addr.is_null());
        addrs.sort_unstable();
        addrs.dedup();
        let markers = raw.iter().map(|frame| frame.marker().map(Frame::Marker));
        let mut resolved: Vec<Option<Frame>> = markers.collect();
        read_identities(memory, layout, &addrs, |nth, identity| {
            let Some(&addr) = addrs.get(nth) else { return };
            let (code, function) = self.code(memory, layout, addr, identity);
            if code.is_hidden() {
                return;
            }
            for (frame, to) in raw.iter().zip(&mut resolved) {
                if frame.code == addr {
                    *to = Some(Frame::Python {
                        function: Rc::clone(function),
                        location: code.location(layout, frame.instr),
                    });
                }
            }
        });
        frames.extend(resolved.into_iter().flatten());
    }

    /// The code object at an address, read now unless it is known to be the same.
    fn code(
        &mut self,
        memory: &dyn Memory,
        layout: &Layout,
        addr: Addr,
        identity: Option<CodeIdentity>,
    ) -> &(Code, Rc<Function>) {
        let identity = identity.filter(CodeIdentity::is_proof);
        let known = self.known.get(&addr);
        if known.is_none_or(|(code, _)| identity != Some(code.identity)) {
            let code = read_code(memory, layout, addr).unwrap_or_else(|_| Code::unreadable());
            if self.bytes + code.heap_bytes() > BYTES_MAX {
                self.known.clear();
                self.bytes = 0;
            }
            self.bytes += code.heap_bytes();
            let function = Rc::new(Function {
                qualname: code.qualname.clone(),
                filename: code.filename.clone(),
                first_line: code.first_line,
            });
            if let Some((old, _)) = self.known.insert(addr, (code, function)) {
                self.bytes = self.bytes.saturating_sub(old.heap_bytes());
            }
        }
        &self.known[&addr]
    }
}
