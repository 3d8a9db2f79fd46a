//! [`Reader`]: numbers and pieces out of a message, none of which reads beyond its end.

use crate::failure::{Failure, Result};

/// The rest of a message; numbers are big-endian.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes were taken")))
    }

    pub fn i32(&mut self) -> Result<i32> {
        Ok(self.u32()? as i32)
    }

    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes were taken")))
    }
}

fn short() -> Failure {
    Failure::new("a reply ends too early")
}
