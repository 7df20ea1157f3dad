//! Copies of an interpreter's files, to delete, replace and strip.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use unwind_tests::{Place, Python};
use unwind_user::process::elf::Elf;

use super::target::Target;

/// How an interpreter was built, as it says itself. Paths are those that it sees.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    root: PathBuf,
    executable: PathBuf,
    prefix: PathBuf,
    library: Option<PathBuf>,
    pub(crate) minor: u8,
}

impl Build {
    pub(crate) fn of(python: &Python) -> Result<Self, String> {
        let ask = "import os, sys, sysconfig; get = sysconfig.get_config_var; \
                   print(os.path.realpath(sys.executable)); print(sys.base_prefix); \
                   print(sys.version_info[1]); \
                   print(os.path.join(get('LIBDIR'), get('INSTSONAME')) \
                   if get('Py_ENABLE_SHARED') and 'libpython' in open('/proc/self/maps').read() \
                   else '') if os.path.exists('/proc/self/maps') else print('')";
        let output = python.command().args(["-I", "-c", ask]).output();
        let output = output.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let [executable, prefix, minor, library] = text.lines().collect::<Vec<_>>()[..] else {
            return Err(format!("{output:?}"));
        };
        let root = match &python.place {
            Place::Host(_) => "/".into(),
            Place::Chroot { root, .. } => root.clone(),
        };
        Ok(Self {
            root,
            executable: executable.into(),
            prefix: prefix.into(),
            library: (!library.is_empty()).then(|| library.into()),
            minor: minor
                .parse()
                .map_err(|_| format!("minor version {minor:?}"))?,
        })
    }

    /// Whether the interpreter is in a shared library.
    pub(crate) const fn is_shared(&self) -> bool {
        self.library.is_some()
    }

    /// The file that holds the interpreter, in our file system.
    pub(crate) fn runtime_file(&self) -> PathBuf {
        self.outside(self.library.as_ref().unwrap_or(&self.executable))
    }

    fn outside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// The build id of a file.
pub(crate) fn build_id(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Elf::read(file)
        .map(|elf| elf.build_id)
        .map_err(|error| error.to_string())
}

/// A folder with copies of an interpreter's program and library, named like neither.
#[derive(Debug)]
pub(crate) struct Copies {
    build: Build,
    program: Command,
    /// The folder as the interpreter sees it.
    folder: PathBuf,
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl Copies {
    pub(crate) fn of(python: &Python) -> Result<Self, String> {
        let build = Build::of(python)?;
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("/tmp/unwind-attach-{}-{number}", std::process::id());
        let copies = Self {
            build,
            program: python.program("attach.py"),
            folder: folder.into(),
        };
        let outside = copies.build.outside(&copies.folder);
        fs::create_dir_all(outside).map_err(|error| error.to_string())?;
        copies.copy(&copies.build.executable, "snake")?;
        if let Some(library) = &copies.build.library {
            copies.copy(library, "libfoo.so")?;
        }
        Ok(copies)
    }

    fn copy(&self, from: &Path, name: &str) -> Result<(), String> {
        let to = self.outside(name);
        fs::copy(self.build.outside(from), to)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// A file in the folder, as we see it.
    fn outside(&self, name: &str) -> PathBuf {
        self.build.outside(&self.folder.join(name))
    }

    /// The copied file that holds the interpreter.
    fn runtime(&self) -> PathBuf {
        self.outside(if self.build.is_shared() {
            "libfoo.so"
        } else {
            "snake"
        })
    }

    /// Starts the copied program, with the copied library.
    pub(crate) fn start(&self, mode: &str) -> Result<Target, String> {
        let snake = self.folder.join("snake");
        let mut command = match self.build.root == Path::new("/") {
            true => Command::new(snake),
            false => {
                let mut command = Command::new("chroot");
                command.arg(&self.build.root).arg(snake);
                command
            }
        };
        if self.build.is_shared() {
            // Loaded first, it satisfies the program's need of a library of that name.
            command.env("LD_PRELOAD", self.folder.join("libfoo.so"));
        }
        Target::start(self.attach_program(&mut command, mode))
    }

    /// Adds the program to run and the mode, and where the standard library is.
    fn attach_program<'a>(&self, command: &'a mut Command, mode: &str) -> &'a mut Command {
        let script = self.program.get_args().last().unwrap_or_default();
        command
            .arg(script)
            .arg(mode)
            .env("PYTHONHOME", &self.build.prefix)
    }

    /// A program with the shared library linked in.
    pub(crate) fn embedding(&self, mode: &str) -> Result<Command, String> {
        let library = self.build.library.as_ref().ok_or("no library")?;
        let folder = library.parent().ok_or("no folder")?;
        let rpath = format!("-Wl,-rpath,{}", folder.display());
        let mut command = Command::new(self.compile(&["-DLINKED", &rpath], Some(library))?);
        self.attach_program(&mut command, mode);
        Ok(command)
    }

    /// A program that opens the library, under another name, when it has a second thread.
    pub(crate) fn opening_late(&self, mode: &str) -> Result<Command, String> {
        let mut command = Command::new(self.compile(&[], None)?);
        command.arg(self.outside("libfoo.so"));
        self.attach_program(&mut command, mode);
        Ok(command)
    }

    fn compile(&self, flags: &[&str], library: Option<&Path>) -> Result<PathBuf, String> {
        let output = self.outside("embed");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/embed.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(flags)
            .arg("-pthread")
            .arg("-o")
            .arg(&output)
            .arg(source);
        compiler.args(library).arg("-ldl");
        match compiler.status() {
            Ok(status) if status.success() => Ok(output),
            other => Err(format!("{compiler:?}: {other:?}")),
        }
    }

    pub(crate) fn library_under_another_name(&self) -> Result<PathBuf, String> {
        self.build.library.as_ref().ok_or("no library")?;
        Ok(self.folder.join("libfoo.so"))
    }

    pub(crate) fn delete(&self) -> Result<(), String> {
        fs::remove_file(self.outside("snake")).map_err(|error| error.to_string())?;
        if self.build.is_shared() {
            fs::remove_file(self.outside("libfoo.so")).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// As an upgrade does: another file where the old one was.
    pub(crate) fn replace_by_rubbish(&self) -> Result<(), String> {
        fs::write(self.runtime(), "no program").map_err(|error| error.to_string())
    }

    /// What `sstrip` does: the header names no sections.
    pub(crate) fn remove_section_headers(&self) -> Result<(), String> {
        let file = OpenOptions::new().write(true).open(self.runtime());
        let file = file.map_err(|error| error.to_string())?;
        // e_shoff; e_shentsize, e_shnum and e_shstrndx.
        for (offset, len) in [(0x28, 8), (0x3a, 6)] {
            file.write_all_at(&[0; 8][..len], offset)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Renames a symbol in the string table.
    pub(crate) fn rename_symbol(&self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let mut bytes = fs::read(self.runtime()).map_err(|error| error.to_string())?;
        let name = [b"\0", from, b"\0"].concat();
        let found = bytes.windows(name.len()).position(|window| window == name);
        let at = found.ok_or("no such symbol")? + 1;
        bytes[at..at + to.len()].copy_from_slice(to);
        fs::write(self.runtime(), bytes).map_err(|error| error.to_string())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        fs::remove_dir_all(self.build.outside(&self.folder)).ok();
    }
}
