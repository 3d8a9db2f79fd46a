//! [`Credentials`]: who may use a gateway, from memcached's auth file.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Users and their passwords, of which only hashes are kept. It says nothing of either in its `Debug` form.
pub struct Credentials {
    known: Vec<blake3::Hash>,
}

/// Why a file of users is not taken. It quotes no line: a password may stand anywhere in it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read {path}: {error}")]
    Unreadable { path: String, error: std::io::Error },
    #[error("{path} may be read or changed by others: chmod 600 {path}")]
    Exposed { path: String },
    #[error("{path} has more than {FILE_BYTES_MAX} bytes")]
    TooLarge { path: String },
    #[error("{path}, line {line}: not USER:PASSWORD")]
    NoColon { path: String, line: usize },
    #[error("{path}, line {line}: user and password have 1 to {WORD_BYTES_MAX} bytes")]
    Length { path: String, line: usize },
    #[error("{path} names nobody")]
    Empty { path: String },
}

impl Credentials {
    /// Lines of `user:password`, as memcached's `-Y` has them. Others must not be able to read the file.
    pub fn read(path: &Path) -> Result<Credentials, CredentialsError> {
        let shown = || path.display().to_string();
        let unreadable = |error| CredentialsError::Unreadable { path: shown(), error };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        // Of what was opened, not of whatever has that name by now.
        if file.metadata().map_err(unreadable)?.mode() & EXPOSED != 0 {
            return Err(CredentialsError::Exposed { path: shown() });
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(CredentialsError::TooLarge { path: shown() });
        }
        let mut known = Vec::new();
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let colon = colon.ok_or_else(|| CredentialsError::NoColon { path: shown(), line: at + 1 })?;
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            if [user, password].iter().any(|word| !(1..=WORD_BYTES_MAX).contains(&word.len())) {
                return Err(CredentialsError::Length { path: shown(), line: at + 1 });
            }
            known.push(hash(user, password));
        }
        if known.is_empty() {
            return Err(CredentialsError::Empty { path: shown() });
        }
        Ok(Credentials { known })
    }

    /// Whether there is that user with that password. How long it takes tells nothing of how much of it is right: hashes
    /// are compared in constant time, and all of them.
    pub fn has(&self, user: &[u8], password: &[u8]) -> bool {
        let asked = hash(user, password);
        self.known.iter().fold(false, |found, one| found | (*one == asked))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} users", self.known.len())
    }
}

/// The length first: no other pair has the same bytes.
fn hash(user: &[u8], password: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(user.len() as u64).to_le_bytes()).update(user).update(password);
    hasher.finalize()
}

/// Mode bits that a file of passwords must not have: any of others, and writing of the group.
const EXPOSED: u32 = 0o027;

/// A file of users is not larger, or it is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// memcached's limit of a user's name, and of a password.
const WORD_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(name: &str, text: &[u8], mode: u32) -> Result<Credentials, CredentialsError> {
        let path = std::env::temp_dir().join(format!("kumo-credentials-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let read = Credentials::read(&path);
        std::fs::remove_file(&path).unwrap();
        read
    }

    #[test]
    fn users_have_their_own_passwords() {
        let credentials = read("good", b"ann:s3cret\r\n\nbob:pw:with:colons\n", 0o640).unwrap();
        assert!(credentials.has(b"ann", b"s3cret"));
        assert!(credentials.has(b"bob", b"pw:with:colons"));
        for (user, password) in [
            ("ann", "s3cre"),
            ("ann", "pw:with:colons"),
            ("anns", "3cret"),
            ("", ""),
            ("bob:pw", "with:colons"),
        ] {
            assert!(!credentials.has(user.as_bytes(), password.as_bytes()), "{user} {password}");
        }
        assert_eq!(format!("{credentials:?}"), "2 users");
    }

    #[test]
    fn a_file_that_is_not_right_is_refused_without_quoting_it() {
        let long = [b"ann:", &[b'x'; 257][..]].concat();
        let cases: [(&[u8], u32, &str); 8] = [
            (b"ann:s3cret", 0o644, "may be read or changed by others"),
            (b"ann:s3cret", 0o620, "may be read or changed by others"),
            (b"bob:x\ns3cret", 0o600, "line 2: not USER:PASSWORD"),
            (b":s3cret", 0o600, "line 1: user and password have 1 to 256 bytes"),
            (b"ann:", 0o600, "line 1: user and password have 1 to 256 bytes"),
            (&long, 0o600, "line 1: user and password have 1 to 256 bytes"),
            (b"\n\n", 0o600, "names nobody"),
            (&[b'\n'; (1 << 20) + 1], 0o600, "has more than 1048576 bytes"),
        ];
        for (number, (text, mode, why)) in cases.into_iter().enumerate() {
            let error = read(&number.to_string(), text, mode).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let missing = Credentials::read(Path::new("/nowhere/users")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nowhere/users: "), "{missing}");
    }
}
