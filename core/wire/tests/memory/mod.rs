//! What decoding costs at most. The decoders' tests of all core crates include this file: it measures the address space
//! of the process, for counting allocations one by one would take unsafe code.

use bytes::Bytes;

/// Bytes of zeros put behind a message: counts that claim them are not refused at once.
const TAIL_BYTES: usize = 64 * 1024;
/// Bytes in memory that a byte of input may lead to.
const FACTOR: usize = 64;
/// What the allocator takes at a time, and what else the process does meanwhile.
const SLACK_BYTES: usize = 8 * 1024 * 1024;

/// Decodes the messages with every four bytes of each claiming, in turn, a length that is not there; and shows
/// that the process never reserved more than a constant times what it was given.
pub fn lengths_are_not_believed(messages: &[Bytes], decode: impl Fn(Bytes)) {
    let longest = messages.iter().map(Bytes::len).max().expect("messages") + TAIL_BYTES;
    let claims = [u32::MAX, i32::MAX as u32, 1 << 28, 1 << 24, TAIL_BYTES as u32, TAIL_BYTES as u32 / 16];
    let reserved = Reserved::start();
    for message in messages {
        for tail in [0, TAIL_BYTES] {
            let mut bytes = message.to_vec();
            bytes.resize(message.len() + tail, 0);
            for place in 0..message.len().saturating_sub(3) {
                let there: [u8; 4] = bytes[place..place + 4].try_into().expect("four bytes");
                for claim in claims {
                    bytes[place..place + 4].copy_from_slice(&claim.to_le_bytes());
                    decode(Bytes::copy_from_slice(&bytes));
                }
                bytes[place..place + 4].copy_from_slice(&there);
            }
        }
    }
    let grown = reserved.grown();
    assert!(grown <= FACTOR * longest + SLACK_BYTES, "{grown} bytes were reserved for {longest}");
}

/// How much more address space the process has had since than ever before: what was reserved counts, touched or not.
pub struct Reserved {
    peak: usize,
    /// Fills the room up to the peak that there was before, or it would hide as much.
    _ballast: Vec<u8>,
}

impl Reserved {
    pub fn start() -> Reserved {
        let room = status("VmPeak:") - status("VmSize:");
        let ballast = std::hint::black_box(Vec::with_capacity(room));
        Reserved { peak: status("VmPeak:"), _ballast: ballast }
    }

    pub fn grown(&self) -> usize {
        status("VmPeak:") - self.peak
    }
}

/// What Linux tells of this process, in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's own status");
    let value = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of that name");
    let kilobytes: usize = value.trim().trim_end_matches(" kB").parse().expect("kilobytes");
    kilobytes * 1024
}
