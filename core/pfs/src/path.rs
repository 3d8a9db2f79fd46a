//! [`Path`]: a path whose form has been checked, and the rules for names.

use crate::protocol::{DEPTH_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, Refusal};

/// An absolute path: `/`, or `/` before each of 1 to [`DEPTH_MAX`] names. Says nothing about what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path<'a>(&'a str);

impl<'a> Path<'a> {
    pub fn parse(text: &'a str) -> Result<Path<'a>, Refusal> {
        if text.len() > PATH_BYTES_MAX {
            return bad(format!("longer than {PATH_BYTES_MAX} bytes"));
        }
        let Some(names) = text.strip_prefix('/') else {
            return bad("does not start with /".to_owned());
        };
        let path = Path(text);
        if !names.is_empty() {
            names.split('/').try_for_each(check_component)?;
        }
        if path.depth() > DEPTH_MAX {
            return bad(format!("more than {DEPTH_MAX} names"));
        }
        Ok(path)
    }

    pub fn text(self) -> &'a str {
        self.0
    }

    pub fn is_root(self) -> bool {
        self.0 == "/"
    }

    /// How many names it has.
    pub fn depth(self) -> usize {
        if self.is_root() { 0 } else { self.0.bytes().filter(|&byte| byte == b'/').count() }
    }

    /// The directory that holds it and its name there; nothing holds the root.
    pub fn split(self) -> Option<(Path<'a>, &'a str)> {
        if self.is_root() {
            return None;
        }
        let slash = self.0.rfind('/').expect("a path starts with one");
        Some((Path(&self.0[..slash.max(1)]), &self.0[slash + 1..]))
    }

    /// The way down from the root: each directory on it and the name to follow there.
    pub fn steps(self) -> impl Iterator<Item = (Path<'a>, &'a str)> {
        let text = self.0;
        let names = if self.is_root() { "" } else { text };
        names.match_indices('/').map(move |(slash, _)| {
            let name = text[slash + 1..].split('/').next().unwrap_or_default();
            (Path(&text[..slash.max(1)]), name)
        })
    }

    /// Whether it lies below the other.
    pub fn is_below(self, above: Path) -> bool {
        let rest = self.0.strip_prefix(above.0);
        !self.is_root() && rest.is_some_and(|rest| above.is_root() || rest.starts_with('/'))
    }
}

/// What may stand between two slashes.
pub(crate) fn check_component(name: &str) -> Result<(), Refusal> {
    match name {
        "" => bad("empty name".to_owned()),
        "." | ".." => bad(format!("{name} has no meaning here")),
        _ if name.len() > NAME_BYTES_MAX => bad(format!("name longer than {NAME_BYTES_MAX} bytes")),
        _ if name.contains(['\0', '/']) => bad("name with NUL or /".to_owned()),
        _ => Ok(()),
    }
}

/// The name of a lock or a queue.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let bad = |why: String| Err(Refusal::BadName(why));
    match name {
        "" => bad("empty".to_owned()),
        _ if name.len() > NAME_BYTES_MAX => bad(format!("longer than {NAME_BYTES_MAX} bytes")),
        _ if name.contains('\0') => bad("contains NUL".to_owned()),
        _ => Ok(()),
    }
}

/// Says what is wrong without repeating the path, which may be of any length and form.
fn bad<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal::BadPath(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_absolute_paths_pass() {
        let long = format!("/{}", "x".repeat(NAME_BYTES_MAX + 1));
        let deep = "/x".repeat(DEPTH_MAX + 1);
        let wide = format!("/{}", "x".repeat(200)).repeat(21);
        for text in
            ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/a/..", "/./a", "/a\0b", &long, &deep, &wide]
        {
            assert!(matches!(Path::parse(text), Err(Refusal::BadPath(_))), "{text:?}");
        }
        let longest = format!("/{}", "x".repeat(NAME_BYTES_MAX));
        let deepest = "/x".repeat(DEPTH_MAX);
        for text in ["/", "/a", "/a/b", "/...", "/雲/ ", "/.a", &longest, &deepest] {
            assert!(Path::parse(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_path_knows_its_way() {
        let path = Path::parse("/a/bc/d").unwrap();
        let steps: Vec<(&str, &str)> = path.steps().map(|(above, name)| (above.text(), name)).collect();
        assert_eq!(steps, [("/", "a"), ("/a", "bc"), ("/a/bc", "d")]);
        let (above, name) = path.split().unwrap();
        assert_eq!((above.text(), name, path.depth()), ("/a/bc", "d", 3));
        let root = Path::parse("/").unwrap();
        assert_eq!((root.steps().count(), root.split(), root.depth()), (0, None, 0));
        assert_eq!(Path::parse("/a").unwrap().split(), Some((root, "a")));
    }

    #[test]
    fn below_is_by_names_not_by_letters() {
        let is_below = |a, b| Path::parse(a).unwrap().is_below(Path::parse(b).unwrap());
        assert!(is_below("/a/b", "/a") && is_below("/a", "/"));
        assert!(
            !is_below("/ab", "/a") && !is_below("/a", "/a") && !is_below("/", "/") && !is_below("/a", "/a/b")
        );
    }
}
