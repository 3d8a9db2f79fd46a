//! [`Workshop`]: a folder in which C programs are compiled, and [`Program`]: one that runs.

use super::support::{Cell, eventually, next_line, read_all, signal};
use rustix::process::Signal;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Where one test compiles its programs.
pub struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    pub fn new(test: &str) -> Workshop {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c").join(test);
        std::fs::create_dir_all(&folder).unwrap();
        Workshop { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Compiles a program of client/c against libpfs.so.
    pub fn c(&self, name: &str) -> PathBuf {
        let source = client().join("c").join(format!("{name}.c"));
        let link = self.link();
        self.compile("cc", C99, &source, &[&link[0], &link[1], "-lpfs", "-lpthread"])
    }

    /// Where the linker finds libpfs.so, and the loader.
    pub fn link(&self) -> [String; 2] {
        [format!("-L{}", libraries().display()), format!("-Wl,-rpath,{}", self.run_path().display())]
    }

    /// Where the loader finds the library under the name that a program asks for, as an installation has it.
    fn run_path(&self) -> PathBuf {
        let folder = self.folder.join("lib");
        std::fs::create_dir_all(&folder).unwrap();
        let link = folder.join(SONAME);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(libraries().join("libpfs.so"), &link).unwrap();
        folder
    }

    /// As [`c`](Workshop::c), with libpfs.a in the program.
    pub fn c_static(&self, name: &str) -> PathBuf {
        let source = client().join("c").join(format!("{name}.c"));
        let library = libraries().join("libpfs.a");
        self.compile("cc", C99, &source, &[library.to_str().unwrap(), "-lpthread", "-ldl", "-lm"])
    }

    /// Compiles without a warning, or fails the test.
    pub fn compile(&self, compiler: &str, standard: &[&str], source: &Path, link: &[&str]) -> PathBuf {
        let program = self.folder.join(source.file_stem().unwrap());
        let output = Command::new(compiler)
            .args(standard)
            .args(["-g", "-Wall", "-Wextra", "-Werror"])
            .arg(format!("-I{}", client().join("include").display()))
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(link)
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", source.display());
        program
    }
}

/// The folder of the client.
pub fn client() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("client")
}

/// Where libpfs.so and libpfs.a are: built with this test, beside it.
pub fn libraries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for library in ["libpfs.so", "libpfs.a"] {
        assert!(folder.join(library).exists(), "{library} is not in {}", folder.display());
    }
    folder
}

/// A program that runs against a cell. Killed when it is dropped before its end.
pub struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(cell: &Cell, program: impl AsRef<Path>, arguments: &[&str]) -> Program {
        let mut command = Command::new(program.as_ref());
        command.args(arguments).env("KUMO_CELL", &cell.members);
        Program::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Program {
        // The test's own surroundings have a path to some libpfs.so; what counts is the one that was linked.
        let mut child = command
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().unwrap());
        Program { child, output }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn next_line(&mut self) -> String {
        next_line(&mut self.output)
    }

    /// Reads up to a line.
    pub fn says(&mut self, what: &str) {
        loop {
            let line = self.next_line();
            if line.is_empty() {
                panic!("ended without saying {what}: {}", self.complaints());
            }
            if line == what {
                return;
            }
        }
    }

    /// All further lines, up to the end, which must be in order and is said by "ok".
    pub fn ends_well(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.next_line() {
                line if line.is_empty() => break,
                line => lines.push(line),
            }
        }
        let complaints = self.complaints();
        let status = eventually("the program ends", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {complaints}");
        assert_eq!(lines.pop().as_deref(), Some("ok"), "{complaints}");
        lines
    }

    fn complaints(&mut self) -> String {
        self.child.stderr.take().map(read_all).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            signal(self.child.id(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Runs a program to its end, which must be in order.
pub fn run(cell: &Cell, program: impl AsRef<Path>, arguments: &[&str]) -> Vec<String> {
    Program::start(cell, program, arguments).ends_well()
}

/// Kills the master with all it remembers.
pub fn kill_master(cell: &Cell) {
    let master = cell.json(&["cell", "wait"])["master"].as_str().unwrap().to_owned();
    let index = cell.members.split(',').position(|member| member == master).unwrap();
    signal(cell.pids[index], Signal::KILL);
}

/// What programs ask the loader for. It changes when a program would have to be compiled anew.
pub const SONAME: &str = "libpfs.so.0";

/// As the header promises: C99, with what POSIX adds for the programs' own needs.
pub const C99: &[&str] = &["-std=c99", "-D_POSIX_C_SOURCE=200809L"];
