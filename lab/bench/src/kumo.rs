//! [`Kumo`]: the binary, its commands, and its load generator.

use crate::failure::{Context, Failure, Result};
use crate::load::Load;
use crate::process::held;
use crate::sample::Sample;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[derive(Clone)]
pub struct Kumo {
    binary: PathBuf,
}

impl Kumo {
    /// The binary that was named, or that of this checkout, built now.
    pub fn find(named: Option<&Path>) -> Result<Kumo> {
        let binary = match named {
            Some(named) => named.to_owned(),
            None => {
                let own = std::env::current_exe().context("find this binary")?;
                build(&own)?;
                own.with_file_name("kumo")
            }
        };
        let kumo = Kumo { binary };
        let version = kumo.output(&["--version"]).context("kumo does not run")?;
        match version.status.success() {
            true => Ok(kumo),
            false => {
                Err(Failure::new(format!("{} --version ends with {}", kumo.binary.display(), version.status)))
            }
        }
    }

    /// A command whose process ends with ours.
    pub fn command(&self) -> Command {
        held(&self.binary)
    }

    pub fn output(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::null()).output().context(self.binary.display())
    }

    /// What a command prints with `--format json`.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.output(&[arguments, &["--format", "json"]].concat())?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first = errors.lines().next().unwrap_or("no reason given");
            return Err(Failure::new(format!("kumo {}: {first}", arguments.join(" "))));
        }
        serde_json::from_slice(&output.stdout).context(format!("kumo {}", arguments.join(" ")))
    }

    /// A load by `kumo bench`.
    pub fn load(&self, arguments: Vec<String>) -> Load {
        let kumo = self.clone();
        Box::new(move || {
            let words: Vec<&str> =
                ["bench"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
            Sample::read(&kumo.json(&words)?)
        })
    }
}

/// Builds the product as this program was built: a binary of yesterday, or of another profile, would be measured otherwise.
fn build(own: &Path) -> Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    // A profile's programs are in a folder of its name; only that of `dev` has another.
    let folder = own.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    let profile = folder.filter(|folder| *folder != "debug").unwrap_or("dev");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--package", "kumo", "--profile", profile])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    match command.status().context("cargo build")?.success() {
        true => Ok(()),
        false => Err(Failure::new("kumo does not build")),
    }
}

/// `name1,name2`, as several options of kumo take it.
pub fn joined<T: ToString>(names: &[T]) -> String {
    names.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
