//! [`origin`]: which server a backup is of, and in which hash space that server acted, for those who put backups together.

use crate::NodeError;
use kumo_cluster::{Fault, Incarnation, ServerId, Space};
use kumo_store::NOTE_BYTES_MAX;
use kumo_wire::{Malformed, Reader, Wire, Writer};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// What a server's store keeps of the hash space that it acts in.
///
/// | field  | what it is                                                                      |
/// |--------|---------------------------------------------------------------------------------|
/// | space  | the space                                                                       |
/// | server | an option: the server's own place in it; stores of before do not have the field |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    pub space: Space,
    /// None: it has no place there, as one that was taken out, or was never put in.
    pub server: Option<ServerId>,
}

impl Acting {
    /// A life's number is its own: it is found by that.
    pub fn of(life: Option<Incarnation>, space: &Space) -> Acting {
        let member = space.members.iter().find(|member| Some(member.incarnation) == life);
        Acting { space: space.clone(), server: member.map(|member| member.id()) }
    }
}

impl Wire for Acting {
    fn encode(&self, out: &mut Writer) {
        self.space.encode(out);
        self.server.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, Malformed> {
        let space = Space::decode(input)?;
        let server = if input.left() == 0 { None } else { Wire::decode(input)? };
        Ok(Acting { space, server })
    }
}

/// Whose store that folder has, or had when it was backed up. None: it does not say, as what was merged, and what was
/// written before servers noted it. Nothing there is changed; that it is a store at all is for others to see.
pub fn origin(store: &Path) -> Result<Option<(ServerId, Space)>, NodeError> {
    let path = store.join(format!("{SPACE}.note"));
    let damaged = |why: String| NodeError::Store(Fault::Damaged(format!("{}: {why}", path.display())));
    let content = match File::open(&path).and_then(content) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(damaged(error.to_string())),
    };
    let acting = Acting::from_bytes(content.into()).map_err(|malformed| damaged(malformed.to_string()))?;
    if !acting.space.well_formed() {
        return Err(damaged("a hash space breaks a rule".to_owned()));
    }
    Ok(acting.server.map(|server| (server, acting.space)))
}

/// What a note's file holds: the CRC-32 of what follows, the length of the content, big-endian both, and the content. What
/// stands behind it is left of longer notes.
fn content(mut file: File) -> io::Result<Vec<u8>> {
    let wrong = |why: &str| io::Error::new(ErrorKind::InvalidData, why);
    let (mut sum, mut length) = ([0; 4], [0; 4]);
    file.read_exact(&mut sum)?;
    file.read_exact(&mut length)?;
    let bytes = u32::from_be_bytes(length) as usize;
    if bytes > NOTE_BYTES_MAX {
        return Err(wrong("longer than any note"));
    }
    let mut checked = length.to_vec();
    checked.resize(length.len() + bytes, 0);
    file.read_exact(&mut checked[length.len()..])?;
    match crc32fast::hash(&checked) == u32::from_be_bytes(sum) {
        true => Ok(checked.split_off(length.len())),
        false => Err(wrong("wrong checksum")),
    }
}

/// The note's name.
pub const SPACE: &str = "space";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kept::{self, Kept, OF_THIS_SERVER};
    use kumo_cluster::{Member, MemberState, SpaceNumber};
    use kumo_store::{Engine, Options};
    use std::fs;
    use std::net::SocketAddr;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("kumo-origin-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn space(life: Incarnation) -> Space {
        let address = SocketAddr::from(([127, 0, 0, 1], 19800));
        let members = vec![Member { address, incarnation: life, state: MemberState::Active }];
        let empty = Space::empty(Default::default(), SpaceNumber(7));
        Space { members, rhs: vec![0], whs: vec![0], ..empty }
    }

    #[test]
    fn a_backup_says_which_server_it_is_of() {
        let folder = Folder::new("backup");
        let (store, backup) = (folder.0.join("store"), folder.0.join("store-nightly"));
        let (engine, _) = Engine::open(&store, Options::default()).unwrap();
        let (_, life) = Kept::begin(&engine).unwrap();
        assert_eq!(origin(&store).unwrap(), None, "it was never attached");
        let space = space(life);
        kept::adopted(&engine, Some(life), &space).unwrap();
        engine.backup(&backup, &OF_THIS_SERVER).unwrap();
        assert_eq!(origin(&backup).unwrap(), Some((space.members[0].id(), space.clone())));
        let (next, reborn) = Kept::begin(&engine).unwrap();
        assert_eq!(next.space.as_ref(), Some(&space));
        kept::adopted(&engine, Some(reborn), &space).unwrap();
        assert_eq!(origin(&store).unwrap(), None, "that life has no place there");
        assert_eq!(origin(&folder.0.join("nothing")).unwrap(), None);
    }

    #[test]
    fn a_store_of_before_opens_and_does_not_say() {
        let folder = Folder::new("before");
        let store = folder.0.join("store");
        let (engine, _) = Engine::open(&store, Options::default()).unwrap();
        let space = space(Incarnation(1));
        engine.put_note(SPACE, &space.to_bytes()).unwrap();
        assert_eq!(origin(&store).unwrap(), None);
        assert_eq!(Kept::begin(&engine).unwrap().0.space, Some(space));
    }

    #[test]
    fn what_does_not_read_is_named() {
        let folder = Folder::new("damage");
        let path = folder.0.join("space.note");
        let (engine, _) = Engine::open(&folder.0.join("store"), Options::default()).unwrap();
        let of = |content: &[u8]| {
            engine.put_note(SPACE, content).unwrap();
            fs::read(folder.0.join("store/space.note")).unwrap()
        };
        let mut crooked = space(Incarnation(1));
        crooked.rhs = vec![1];
        let mut longer = of(b"whole");
        longer[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        let mut other = of(b"whole");
        other[9] ^= 1;
        let crooked = Acting { space: crooked, server: None }.to_bytes();
        for (bytes, why) in [
            (Vec::new(), "failed to fill whole buffer"),
            (longer, "longer than any note"),
            (other, "wrong checksum"),
            (of(b"no hash space"), "message ends early"),
            (of(&crooked), "a hash space breaks a rule"),
        ] {
            fs::write(&path, bytes).unwrap();
            let said = origin(&folder.0).unwrap_err().to_string();
            assert!(said.contains("space.note: ") && said.contains(why), "{said}");
        }
    }
}
