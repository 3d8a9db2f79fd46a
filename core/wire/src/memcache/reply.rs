//! The client's side: [`ReplyDecoder`] reads what a server answers to [`Call`](super::Call)s.

use super::binary::{HEADER_BYTES, MAGIC_RESPONSE, Opcode};
use super::decoder::{LINE_BYTES_MAX, Protocol};
use super::number::unsigned;
use super::words::FewWords;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// One answer, the same for both protocols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `cas` is there if it was asked for, and always in binary.
    Value {
        key: Bytes,
        flags: u32,
        cas: Option<u64>,
        data: Bytes,
    },
    /// Of a get, after its values.
    End,
    Stored,
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Number(u64),
    /// What the server said instead.
    Error(Bytes),
}

/// Bytes that are no answer to a [`Call`](super::Call). There is no way on: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    #[error("reply line is too long")]
    Line,
    #[error("reply is not memcached's")]
    Format,
    #[error("value of {0} bytes exceeds the limit")]
    Length(u64),
}

/// One connection's replies.
#[derive(Debug)]
pub struct ReplyDecoder {
    protocol: Protocol,
    value_bytes_max: usize,
    /// The answer to a binary get of one key stands for its `End`, too.
    end_due: bool,
}

impl ReplyDecoder {
    pub fn new(protocol: Protocol, value_bytes_max: usize) -> ReplyDecoder {
        ReplyDecoder { protocol, value_bytes_max, end_due: false }
    }

    /// Takes the next reply off the front of `buffer`, sharing its memory. `None`: not all of it is here yet.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, BadReply> {
        if std::mem::take(&mut self.end_due) {
            return Ok(Some(Reply::End));
        }
        match self.protocol {
            Protocol::Text => self.line(buffer),
            Protocol::Binary => self.packet(buffer),
        }
    }

    fn line(&self, buffer: &mut BytesMut) -> Result<Option<Reply>, BadReply> {
        let Some(end) = memchr(b'\n', &buffer[..buffer.len().min(LINE_BYTES_MAX)]) else {
            return if buffer.len() < LINE_BYTES_MAX { Ok(None) } else { Err(BadReply::Line) };
        };
        if buffer.starts_with(b"VALUE ") {
            return self.value(buffer, end);
        }
        let line = buffer.split_to(end + 1).freeze();
        let line = line.slice(..line[..end].strip_suffix(b"\r").ok_or(BadReply::Format)?.len());
        Ok(Some(match &line[..] {
            b"END" => Reply::End,
            b"STORED" => Reply::Stored,
            b"NOT_STORED" => Reply::NotStored,
            b"EXISTS" => Reply::Exists,
            b"NOT_FOUND" => Reply::NotFound,
            b"DELETED" => Reply::Deleted,
            b"ERROR" => Reply::Error(line),
            _ if line.starts_with(b"CLIENT_ERROR") || line.starts_with(b"SERVER_ERROR") => Reply::Error(line),
            digits => Reply::Number(unsigned(digits).ok_or(BadReply::Format)?),
        }))
    }

    /// `VALUE key flags bytes [cas]`, then the data.
    fn value(&self, buffer: &mut BytesMut, end: usize) -> Result<Option<Reply>, BadReply> {
        let words = FewWords::of(buffer[..end].strip_suffix(b"\r").ok_or(BadReply::Format)?);
        if words.count != 4 && words.count != 5 {
            return Err(BadReply::Format);
        }
        let number = |index| unsigned(words.word(index)).ok_or(BadReply::Format);
        let flags = u32::try_from(number(2)?).map_err(|_| BadReply::Format)?;
        let length = self.checked(number(3)?)?;
        let cas = if words.count == 5 { Some(number(4)?) } else { None };
        let key = words.range(1);
        let total = end + 1 + length + 2;
        if buffer.len() < total {
            return Ok(None);
        }
        let frame = buffer.split_to(total).freeze();
        if !frame.ends_with(b"\r\n") {
            return Err(BadReply::Format);
        }
        let data = frame.slice(end + 1..end + 1 + length);
        Ok(Some(Reply::Value { key: frame.slice(key), flags, cas, data }))
    }

    /// The layout is that of the packet in `answer_binary`.
    fn packet(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, BadReply> {
        let Some(mut header) = buffer.get(..HEADER_BYTES) else { return Ok(None) };
        let (magic, opcode) = (header.get_u8(), header.get_u8());
        let (key, extras) = (usize::from(header.get_u16()), usize::from(header.get_u8()));
        header.advance(1);
        let status = header.get_u16();
        let body = header.get_u32();
        header.advance(4);
        let cas = header.get_u64();
        let opcode = Opcode::of(opcode).filter(|_| magic == MAGIC_RESPONSE).ok_or(BadReply::Format)?;
        let value = (body as usize).checked_sub(key + extras).ok_or(BadReply::Format)?;
        self.checked(value as u64)?;
        let total = HEADER_BYTES + body as usize;
        if buffer.len() < total {
            return Ok(None);
        }
        let mut rest = buffer.split_to(total).freeze();
        rest.advance(HEADER_BYTES);
        let extras = rest.split_to(extras);
        let key = rest.split_to(key);
        let is_get = matches!(opcode, Opcode::GetK | Opcode::GetKQ);
        self.end_due = opcode == Opcode::GetK && status == 0;
        Ok(Some(match status {
            0 if is_get => {
                let flags = extras.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
                Reply::Value { key, flags: flags.ok_or(BadReply::Format)?, cas: Some(cas), data: rest }
            }
            0 => succeeded(opcode, &rest)?,
            1 if is_get => Reply::End,
            1 => Reply::NotFound,
            2 => Reply::Exists,
            5 => Reply::NotStored,
            _ => Reply::Error(rest),
        }))
    }

    fn checked(&self, length: u64) -> Result<usize, BadReply> {
        let checked = usize::try_from(length).ok().filter(|&length| length <= self.value_bytes_max);
        checked.ok_or(BadReply::Length(length))
    }
}

fn succeeded(opcode: Opcode, value: &[u8]) -> Result<Reply, BadReply> {
    match opcode {
        Opcode::Set => Ok(Reply::Stored),
        Opcode::Delete => Ok(Reply::Deleted),
        Opcode::Noop => Ok(Reply::End),
        Opcode::Increment => {
            let number = <[u8; 8]>::try_from(value).map_err(|_| BadReply::Format)?;
            Ok(Reply::Number(u64::from_be_bytes(number)))
        }
        // No call asks for it.
        _ => Err(BadReply::Format),
    }
}
