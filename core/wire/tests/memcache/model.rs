//! A memcached of one thread and one map, behind the grammar under test: what it answers is what the recorded
//! one answers.

use bytes::{Bytes, BytesMut};
use kumo_wire::memcache::{
    Answer, Bad, Command, Create, Decoded, Decoder, Expiry, Failure, Item, Mode, Outcome, Request, Sasl,
    Sign, VALUE_BYTES_MAX_DEFAULT, appended, arithmetic, prepended,
};
use std::collections::BTreeMap;

/// Values of the recorded memcached fit its items with their header: a little less than 1 MiB.
pub const VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX_DEFAULT;

pub struct Model {
    items: BTreeMap<Bytes, Stored>,
    cas: u64,
}

#[derive(Clone)]
struct Stored {
    flags: u32,
    expires: u64,
    cas: u64,
    data: Bytes,
}

impl Stored {
    fn item(&self) -> Item<'_> {
        let ttl = (self.expires != 0).then(|| self.expires.saturating_sub(NOW));
        Item { flags: self.flags, cas: self.cas, ttl, data: &self.data }
    }
}

impl Model {
    pub fn new() -> Model {
        Model { items: BTreeMap::new(), cas: 0 }
    }

    pub fn answer(&mut self, request: Request, out: &mut BytesMut) {
        let Request { answer, command } = request;
        match command {
            Command::Get { keys, touch } => {
                for key in keys.iter() {
                    self.get(&answer, &key, touch, out);
                }
                answer.write(&Outcome::End, out);
            }
            Command::Describe { key } => match self.live(&key) {
                Some(stored) => answer.write(&Outcome::Description(stored.item()), out),
                None => answer.write(&Outcome::Miss { key: &key }, out),
            },
            Command::Quit => {
                // The text protocol hangs up without a word, which its decoder says by wanting no reply.
                answer.write(&Outcome::Ok, out);
            }
            Command::Stats { argument } => stats(&answer, &argument, out),
            command => answer.write(&self.outcome(command), out),
        }
    }

    fn get(&mut self, answer: &Answer, key: &Bytes, touch: Option<Expiry>, out: &mut BytesMut) {
        let Some(mut stored) = self.live(key) else { return answer.write(&Outcome::Miss { key }, out) };
        if let Some(expiry) = touch {
            stored.expires = expiry.at(NOW);
            self.items.insert(key.clone(), stored.clone());
        }
        answer.write(&Outcome::Value { key, item: stored.item() }, out);
    }

    fn outcome(&mut self, command: Command) -> Outcome<'static> {
        match command {
            Command::Store { mode, key, flags, expiry, cas, value } => {
                let new = Stored { flags, expires: expiry.at(NOW), cas: 0, data: value };
                self.store(mode, key, cas, new)
            }
            Command::Delete { key, cas } => match self.live(&key) {
                None => Outcome::NotFound,
                Some(stored) if cas.is_some_and(|cas| cas != stored.cas) => Outcome::Exists,
                Some(_) => {
                    self.items.remove(&key);
                    Outcome::Deleted
                }
            },
            Command::Arithmetic { key, sign, delta, create, cas, touch } => {
                self.arithmetic(key, sign, delta, create, cas, touch)
            }
            Command::Touch { key, expiry } => match self.live(&key) {
                None => Outcome::NotFound,
                Some(stored) => {
                    let (flags, cas) = (stored.flags, stored.cas);
                    self.items.insert(key, Stored { expires: expiry.at(NOW), ..stored });
                    Outcome::Touched { flags, cas }
                }
            },
            Command::FlushAll { delay } => {
                if delay.is_none_or(|delay| delay.at(NOW) <= NOW) {
                    self.items.clear();
                }
                Outcome::Ok
            }
            Command::Verbosity | Command::Noop => Outcome::Ok,
            Command::Version => Outcome::Version("1.6.18"),
            Command::Sasl(Sasl::List | Sasl::Auth { .. } | Sasl::Step { .. } | Sasl::Login { .. }) => {
                unreachable!("the decoder knows")
            }
            Command::Get { .. } | Command::Describe { .. } | Command::Stats { .. } | Command::Quit => {
                unreachable!("answered above")
            }
        }
    }

    fn store(&mut self, mode: Mode, key: Bytes, cas: Option<u64>, new: Stored) -> Outcome<'static> {
        let old = self.live(&key);
        let new = match (mode, old) {
            (Mode::Set, None) if cas.is_some() => return Outcome::NotFound,
            (Mode::Append | Mode::Prepend | Mode::Replace, None) => return Outcome::NotStored,
            (Mode::Add, Some(_)) => return Outcome::NotStored,
            (_, Some(old)) if cas.is_some_and(|cas| cas != old.cas) => return Outcome::Exists,
            (Mode::Append, Some(old)) => match appended(&old.data, &new.data, VALUE_BYTES_MAX) {
                Some(data) => Stored { data, ..old },
                None => return Outcome::NotStored,
            },
            (Mode::Prepend, Some(old)) => match prepended(&old.data, &new.data, VALUE_BYTES_MAX) {
                Some(data) => Stored { data, ..old },
                None => return Outcome::NotStored,
            },
            (Mode::Set | Mode::Add | Mode::Replace, _) => new,
        };
        Outcome::Stored { cas: self.insert(key, new) }
    }

    fn arithmetic(
        &mut self,
        key: Bytes,
        sign: Sign,
        delta: u64,
        create: Option<Create>,
        cas: Option<u64>,
        touch: Option<Expiry>,
    ) -> Outcome<'static> {
        let (number, new) = match (self.live(&key), create) {
            (None, None) => return Outcome::NotFound,
            (None, Some(Create { initial, expiry })) => {
                let data = initial.to_string().into();
                (initial, Stored { flags: 0, expires: touch.unwrap_or(expiry).at(NOW), cas: 0, data })
            }
            (Some(old), _) if cas.is_some_and(|cas| cas != old.cas) => return Outcome::Exists,
            (Some(old), _) => match arithmetic(&old.data, sign, delta) {
                Ok((number, data)) => {
                    let expires = touch.map_or(old.expires, |expiry| expiry.at(NOW));
                    (number, Stored { data, expires, ..old })
                }
                Err(_) => return Outcome::Failed(Failure::NotNumeric),
            },
        };
        let ttl = new.item().ttl;
        Outcome::Number { number, cas: self.insert(key, new), ttl }
    }

    fn insert(&mut self, key: Bytes, new: Stored) -> u64 {
        self.cas += 1;
        self.items.insert(key, Stored { cas: self.cas, ..new });
        self.cas
    }

    fn live(&self, key: &Bytes) -> Option<Stored> {
        self.items.get(key).filter(|stored| stored.expires == 0 || stored.expires > NOW).cloned()
    }
}

/// Of an empty memory.
fn stats(answer: &Answer, argument: &[u8], out: &mut BytesMut) {
    let text = matches!(answer, Answer::Text { .. });
    let outcome = match argument.split(|&byte| byte == b' ').next() {
        Some(b"reset") => Outcome::StatsReset,
        Some(b"items") => Outcome::End,
        Some(b"cachedump") if text => Outcome::End,
        Some(b"sizes") => {
            answer.write(&Outcome::Stat { name: "sizes_status", value: "disabled" }, out);
            Outcome::End
        }
        _ if argument == b"detail on" => Outcome::Ok,
        _ => Outcome::NoSuchStats,
    };
    answer.write(&outcome, out);
}

/// Everything that `pieces` lead to, in their order: the bytes to send, and whether to hang up.
pub fn conversation<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    conversation_with(Decoder::new(VALUE_BYTES_MAX), pieces)
}

/// The same on a port of which [`USERS`] have the keys.
pub fn guarded_conversation<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    conversation_with(Decoder::new(VALUE_BYTES_MAX).guarded(), pieces)
}

fn conversation_with<'a>(mut decoder: Decoder, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    let (mut model, mut buffer, mut out) = (Model::new(), BytesMut::new(), BytesMut::new());
    let mut closed = false;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Decoded::Request(Request { answer, command: Command::Sasl(sasl) }) => {
                    let known = |user: &[u8], password: &[u8]| USERS.contains(&(user, password));
                    answer.write(&decoder.login(&sasl, known), &mut out);
                }
                Decoded::Request(request) => {
                    closed |= request.command == Command::Quit;
                    model.answer(request, &mut out);
                }
                Decoded::Bad(Bad { reply, close }) => {
                    out.extend_from_slice(&reply);
                    closed |= close;
                }
                Decoded::More(missing) => {
                    assert!(missing > 0);
                    break;
                }
            }
        }
    }
    (out.to_vec(), closed)
}

const USERS: [(&[u8], &[u8]); 2] = [(b"ann", b"s3cret"), (b"bob", b"pw:with:colons")];

/// Some time: the transcripts hold no expiry that is near it.
const NOW: u64 = 1_750_000_000;
