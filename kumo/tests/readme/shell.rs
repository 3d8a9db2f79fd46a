//! [`Shell`]: a reader's terminal, with the binary under test on its path.

use crate::support::{KUMO, eventually};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One shell, in an empty folder. What it started in the background ends with it.
pub struct Shell {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
}

impl Shell {
    pub fn open(name: &str) -> Shell {
        let folder = std::env::temp_dir().join(format!("kumo-readme-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut process = command(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("bash is there");
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let mut shell = Shell { process, input, output, folder };
        shell.say("exec 2>&1");
        if shell.run("command -v nc").0 != 0 {
            // What a reader's nc does, for those who have none.
            shell.say(r#"nc() { exec 3<>"/dev/tcp/$1/$2" && cat >&3 && cat <&3; exec 3>&-; }"#);
        }
        shell
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Types a line, and returns its status and what it printed.
    pub fn run(&mut self, line: &str) -> (i32, String) {
        self.say(&format!("{{ {line}\n}} </dev/null; printf '\\n%s %s\\n' {MARK} $?"));
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the shell is there: {text}");
            if let Some(status) = line.strip_prefix(MARK) {
                // The line end before the mark is ours.
                let text = text.strip_suffix('\n').unwrap_or(&text).replace("\r\n", "\n");
                return (status.trim().parse().expect("a status"), text);
            }
            text += &line;
        }
    }

    /// Types a line that must succeed.
    pub fn done(&mut self, line: &str) -> String {
        let (status, text) = self.run(line);
        assert_eq!(status, 0, "{line}: {text}");
        text
    }

    /// Types it again until it prints what a reader waits for.
    pub fn until(&mut self, line: &str, look: impl Fn(&str) -> bool) -> String {
        eventually(line, || {
            let (status, text) = self.run(line);
            (status == 0 && look(&text)).then_some(text)
        })
    }

    /// Starts a process in the background, or as a reader does in a terminal of its own.
    pub fn start(&mut self, line: &str) {
        let line = line.trim_end_matches(" &");
        let log = self.folder.join("log");
        self.say(&format!("{line} >>{} 2>&1 </dev/null &", log.display()));
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("it is open"), "{line}").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = writeln!(input, "kill $(jobs -p); wait");
        }
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            eprintln!("the processes said:\n{log}");
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A shell without a file of its user's, in which `kumo` is the binary under test.
pub fn command(folder: &Path) -> Command {
    let binaries = Path::new(KUMO).parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc"]).current_dir(folder).env("PATH", path).env("TMPDIR", folder);
    command
}

/// Ends what a line printed.
const MARK: &str = "===done===";
