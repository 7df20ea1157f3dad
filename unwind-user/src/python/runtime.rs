//! Finds the interpreter of a process: the address of `_PyRuntime` and the layout of its build.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::{AttachError, PythonChild};
use super::tstate;
use crate::layout::debug_offsets::{self, Trust};
use crate::layout::{Layout, Version, table};
use crate::memory::{Addr, Memory};
use crate::process::elf::{Elf, Tls};
use crate::process::image::{Image, images};
use crate::process::{self, Stat, namespace};

/// Files with code that are looked at in a process.
const IMAGES_MAX: usize = 1024;
/// The same for the children of a process that is no Python.
const CHILD_IMAGES_MAX: usize = 64;
/// Children named in an error.
const CHILDREN_NAMED: usize = 8;
/// Bytes of data searched for the cookie in a process where no symbol and section leads to it.
const SEARCH_MAX: u64 = 64 << 20;
/// Bytes a step of this search.
const SEARCH_STEP: usize = 64 << 10;

/// The interpreter of a process.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Address of `_PyRuntime`.
    pub addr: Addr,
    /// Where its build keeps things.
    pub layout: Layout,
    /// How far the layout can be relied upon.
    pub trust: Trust,
    /// The file that holds it.
    pub image: RuntimeImage,
}

/// The file that holds an interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeImage {
    /// Its path as the kernel shows it; not necessarily one that leads to it.
    pub path: PathBuf,
    /// Whether it is the program itself, not a library.
    pub is_exe: bool,
    /// Its thread-local block.
    pub tls: Option<Tls>,
    /// The linker's build id; empty where there is none.
    pub build_id: Vec<u8>,
}

/// What a file turned out to hold.
enum Found {
    Nothing,
    /// A runtime that no thread uses: not begun, or a second copy of the library.
    Idle,
    Runtime(Box<Runtime>),
}

/// Finds the interpreter of the process `pid`, whose memory is `memory`.
///
/// # Errors
/// [`AttachError`]: what the process is instead, or why its Python cannot be read.
pub fn find(pid: i32, memory: &dyn Memory) -> Result<Runtime, AttachError> {
    check_state(pid)?;
    let images = images_of(pid)?;
    let mut idle = false;
    let mut starting = images.is_empty();
    let mut refused = None;
    let mut unreadable = None;
    let mut elves = Vec::new();
    for image in &images {
        let file = image.open(pid).inspect_err(|error| {
            let may_be_one = image.is_exe || image.names_python();
            let denied = error.kind() == ErrorKind::PermissionDenied && may_be_one;
            if denied && unreadable.is_none() {
                unreadable = Some(process::printable(image.path().as_os_str().as_bytes()));
            }
        });
        let Some(elf) = file.ok().and_then(|file| Elf::read(file).ok()) else {
            continue;
        };
        // Beside the libraries there are the program and the dynamic linker itself.
        starting |= image.is_exe && elf.needed > 0 && images.len() < elf.needed + 2;
        match inspect(pid, memory, image, &elf) {
            Ok(Found::Runtime(runtime)) => return Ok(*runtime),
            Ok(Found::Idle) => idle = true,
            Ok(Found::Nothing) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
        elves.push((image, elf));
    }
    if refused.is_none() && !idle {
        let mut left = SEARCH_MAX;
        for (image, elf) in &elves {
            match search(pid, memory, image, elf, &mut left) {
                Ok(Found::Runtime(runtime)) => return Ok(*runtime),
                Ok(Found::Idle) => idle = true,
                Ok(Found::Nothing) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    let comm = check_state(pid)?;
    // Another program since, or another library: what was seen is of no time at all.
    starting |= images != images_of(pid)?;
    Err(match refused {
        _ if starting => AttachError::Starting { pid },
        Some(error) => error,
        None if idle => AttachError::NotInitialised { pid },
        None => match unreadable {
            Some(path) => AttachError::FileUnreadable { pid, path },
            None => not_python(pid, comm),
        },
    })
}

fn images_of(pid: i32) -> Result<Vec<Image>, AttachError> {
    let mappings = process::mappings(pid).map_err(|error| io_error(pid, &error))?;
    Ok(images(pid, &mappings, IMAGES_MAX))
}

/// Refuses what has no interpreter by its kind; gives the name of the rest.
fn check_state(pid: i32) -> Result<String, AttachError> {
    let io_error = |error| io_error(pid, &error);
    let process = namespace::process_of(pid).map_err(io_error)?;
    let stat = Stat::of(pid).map_err(io_error)?;
    let comm = process::printable(&stat.comm);
    match stat.state {
        _ if stat.is_kernel_thread() => Err(AttachError::KernelThread { pid, comm }),
        b'Z' if process::is_live(pid) => Err(AttachError::FirstThreadEnded { pid }),
        b'Z' => Err(AttachError::Zombie { pid }),
        _ if stat.has_ended() => Err(AttachError::Gone { pid }),
        _ if process != pid => Err(AttachError::Thread { tid: pid, process }),
        _ => Ok(comm),
    }
}

pub(crate) fn io_error(pid: i32, error: &std::io::Error) -> AttachError {
    match error.kind() {
        ErrorKind::PermissionDenied => AttachError::NoPermission { pid },
        // ENOENT from the directory, ESRCH from a file that was open already.
        _ => AttachError::Gone { pid },
    }
}

/// Looks where the file's section and symbol say, at each place where the file is mapped: a
/// second copy, or one page of it mapped again, is not the runtime.
fn inspect(pid: i32, memory: &dyn Memory, image: &Image, elf: &Elf) -> Result<Found, AttachError> {
    let mut biases: Vec<u64> = image.mappings.iter().filter_map(|m| elf.bias(m)).collect();
    biases.sort_unstable();
    biases.dedup();
    let mut outcome = Found::Nothing;
    let mut refused = None;
    for bias in biases {
        for &vaddr in &elf.py_runtime {
            let addr = Addr(bias.wrapping_add(vaddr));
            let version = elf.py_version.map(|at| Addr(bias.wrapping_add(at)));
            match confirm(pid, memory, image, elf, addr, version) {
                Ok(Found::Nothing) => {}
                Ok(Found::Idle) => outcome = Found::Idle,
                Ok(runtime) => return Ok(runtime),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    match (outcome, refused) {
        (Found::Nothing, Some(error)) => Err(error),
        (Found::Nothing, None) if elf.py_version.is_none() && elf.py_initialize => {
            Err(AttachError::VersionUnknown { pid })
        }
        (outcome, _) => Ok(outcome),
    }
}

/// Searches the file's writable data for the cookie (3.13+).
fn search(
    pid: i32,
    memory: &dyn Memory,
    image: &Image,
    elf: &Elf,
    left: &mut u64,
) -> Result<Found, AttachError> {
    let mut outcome = Found::Nothing;
    let mut bytes = vec![0; SEARCH_STEP];
    for mapping in image.mappings.iter().filter(|mapping| mapping.perms.write) {
        for start in (mapping.start..mapping.end).step_by(SEARCH_STEP) {
            let len = usize::try_from(mapping.end - start)
                .unwrap_or(SEARCH_STEP)
                .min(SEARCH_STEP);
            let Some(after) = left.checked_sub(len as u64) else {
                return Ok(outcome);
            };
            *left = after;
            let bytes = &mut bytes[..len];
            if memory.read(Addr(start), bytes).is_err() {
                continue;
            }
            let words = bytes.as_chunks::<8>().0.iter().enumerate();
            for (index, _) in words.filter(|(_, word)| **word == debug_offsets::COOKIE) {
                let addr = Addr(start).add(8 * index as u64);
                match confirm(pid, memory, image, elf, addr, None)? {
                    Found::Nothing => {}
                    Found::Idle => outcome = Found::Idle,
                    runtime => return Ok(runtime),
                }
            }
        }
    }
    Ok(outcome)
}

/// What is at `addr`, if anything; `version` is where `Py_Version` would be.
fn confirm(
    pid: i32,
    memory: &dyn Memory,
    image: &Image,
    elf: &Elf,
    addr: Addr,
    version: Option<Addr>,
) -> Result<Found, AttachError> {
    let Some((layout, trust)) = layout_at(pid, memory, addr, version)? else {
        return Ok(Found::Nothing);
    };
    if tstate::threads(memory, &layout, addr).states.is_empty() {
        return Ok(Found::Idle);
    }
    let image = RuntimeImage {
        path: image.path().to_path_buf(),
        is_exe: image.is_exe,
        tls: elf.tls,
        build_id: elf.build_id.clone(),
    };
    Ok(Found::Runtime(Box::new(Runtime {
        addr,
        layout,
        trust,
        image,
    })))
}

fn layout_at(
    pid: i32,
    memory: &dyn Memory,
    addr: Addr,
    version: Option<Addr>,
) -> Result<Option<(Layout, Trust)>, AttachError> {
    let mut bytes = [0; debug_offsets::BYTES_MAX];
    if memory.read(addr, &mut bytes).is_err() {
        return Ok(None);
    }
    let refused = |reason| AttachError::layout(pid, reason);
    if bytes.starts_with(&debug_offsets::COOKIE) {
        return debug_offsets::parse(&bytes).map(Some).map_err(refused);
    }
    let Some(word) = version.and_then(|at| memory.u64(at).ok()) else {
        return Ok(None);
    };
    // From 3.13 on the runtime has its cookie: without it, this is another copy's `Py_Version`.
    match u32::try_from(word).map(Version) {
        Ok(version) if version.minor().0 == 3 && version.minor().1 < 13 => table(version)
            .map(|layout| Some((layout, Trust::Known)))
            .map_err(refused),
        _ => Ok(None),
    }
}

fn not_python(pid: i32, comm: String) -> AttachError {
    let children = process::descendants(pid).into_iter();
    let children = children.filter(|&pid| looks_like_python(pid));
    let children = children.map(|pid| PythonChild {
        pid,
        comm: process::thread_name(pid, pid).unwrap_or_default(),
    });
    AttachError::NotPython {
        pid,
        comm,
        children: children.take(CHILDREN_NAMED).collect(),
    }
}

fn looks_like_python(pid: i32) -> bool {
    let mappings = process::mappings(pid).unwrap_or_default();
    images(pid, &mappings, CHILD_IMAGES_MAX)
        .iter()
        .any(|image| {
            let elf = image.open(pid).ok().and_then(|file| Elf::read(file).ok());
            elf.is_some_and(|elf| !elf.py_runtime.is_empty() || elf.py_initialize)
        })
}

impl RuntimeImage {
    /// File name of the image, as it is shown.
    #[must_use]
    pub fn name(&self) -> &Path {
        self.path.file_name().map_or(self.path.as_path(), Path::new)
    }
}
