//! The memcached protocols: text, meta and binary, as memcached 1.6 speaks them.
//!
//! Pure: bytes in, [`Request`]s out; [`Outcome`]s in, bytes out. A [`Decoder`] belongs to one connection and takes
//! requests off the front of what the socket delivered; keys and values share that memory. Each request carries an
//! [`Answer`], which knows how its outcome is written. Whoever keeps a key or a value for long copies it: a slice holds
//! the whole buffer. The other side, for load generators and tools, is [`Call`]
//! and [`ReplyDecoder`].
//!
//! One port serves all: the first byte of a connection decides. 0x80 is binary, for as long as the connection
//! lasts; everything else is text, and meta commands are lines among the text ones.
//!
//! Replies are memcached 1.6.18's, byte for byte; the transcripts under tests/memcache were recorded from it. Where kumo
//! differs, it does so on purpose:
//!
//! | case | memcached 1.6.18 | here |
//! |---|---|---|
//! | line longer than a read | closes without a word, if it was cut | `CLIENT_ERROR line too long`, then closes, however it was cut |
//! | multi-key line of `gat`, `gats` | as above | as long as that of `get`: [`KEYS_LINE_BYTES_MAX`] |
//! | client flags above 32 bits | taken modulo 2³² | `CLIENT_ERROR bad command line format` |
//! | expiry beyond 31 bits (text, meta) | taken modulo 2³² | taken as it is, but for the last thirty days below 2³²: negative, as libmemcached spells them |
//! | length above 32 bits | taken modulo 2³² | `CLIENT_ERROR bad command line format` |
//! | value too large for `set` | the old value is dropped | a refused request changes nothing |
//! | value of exactly 1 MiB | too large, with its header | accepted: the limit is the value's own |
//! | `incr`, `decr` to fewer digits | pads with spaces in place | stores the digits |
//! | `incr`, `decr` of a value of nothing but white space | reads on in what lies behind it in memory | not a number |
//! | `touch`, `gat`, `gats`, `mg` with `T` | keep the cas unique | change it: it is the clock of the version, and a touch makes one |
//! | `t` before `T`, or before the `N` by which `ma` creates | what was left before it, of a new number `t-1` | what is left after it, wherever `t` stands |
//! | `T` before `N` in a `ma` that creates | the later flag's expiry | that of `T`, as for a number that is there |
//! | `t` of a number that `ma` creates and that is over at once | counts down from 2³² | `t0` |
//! | `q` of a `ma` that creates | is answered all the same | silent: a success like others |
//! | `ma` with an opaque too long | changes the number, then says so | a refused request changes nothing |
//! | zero byte in a line | ends the line | a byte like others |
//! | text `get` with a key too long | drops replies before it that were not sent yet | answers every request |
//! | binary: unknown opcode with a body | loses its place in the stream | the body is skipped |
//! | binary: `touch`, `gat`, `stat` with bytes too many | loses its place in the stream | `Invalid arguments`, closes |
//! | guarded text: several lines sent at once, up to the login | the last of their replies alone is sent | every line is answered |
//! | guarded text: line above 2048 bytes | closes without a word, if it was cut | closes without a word |
//! | `stats` with `items`, `slabs`, `conns`, `cachedump` | tells what is in the memory of one process | nothing but its end |
//! | `stats` with `sizes_enable`, `sizes_disable` | a line without an end | `ERROR` |
//! | `slabs`, `lru`, `lru_crawler`, `watch`, `cache_memlimit`, `refresh_certs` | memory and watchers of one process | `ERROR` |
//! | `mget` | `ERROR` | as `get` |
//! | `me` | also last access, fetched, slab class | `exp`, `cas`, `size`: what a replica knows |
//! | `k` of an item that was stored with `b` and is asked for without, or the other way round | answers as it was stored | answers as the request spelled it |
//!
//! A connection of a guarded port can do nothing before it has said who it is: in binary by SASL PLAIN, as memcached's
//! `-S`, in text by a first `set` of user and password, as memcached's `-Y`.
//!
//! Meta flags that a replicated store cannot honour get memcached's reply to a flag it does not know
//! (`CLIENT_ERROR invalid flag`; `invalid or duplicate flag` for `md`), and change nothing: `h` and `l` of `mg`
//! (every read would be a replicated write), `N` and `R` of `mg` and `I` of `ms` and `md` (stale items and the
//! one client that wins a refill are no part of a record). `E` is unknown to 1.6.18, too: the
//! cas unique is the record's clock. All others are kept: `b c f k O q s t v C D F J M N T`; and `u L P`, and
//! whatever means nothing to a command, are checked and ignored, as there.

mod answer;
mod answer_binary;
mod answer_meta;
mod base64;
mod binary;
mod call;
mod decoder;
mod gate;
mod meta;
mod number;
mod operation;
mod reply;
mod request;
mod text;
mod words;

pub use answer::{Answer, Failure, Item, Outcome};
pub use answer_meta::{MetaAnswer, MetaVerb};
pub use binary::Opcode;
pub use call::Call;
pub use decoder::{
    Bad, Decoded, Decoder, KEYS_LINE_BYTES_MAX, LINE_BYTES_MAX, Protocol, VALUE_BYTES_MAX_DEFAULT,
};
pub use operation::{NotNumeric, appended, arithmetic, prepended};
pub use reply::{BadReply, Reply, ReplyDecoder};
pub use request::{Command, Create, Expiry, KEY_BYTES_MAX, Keys, Mode, Request, Sasl, Sign};
