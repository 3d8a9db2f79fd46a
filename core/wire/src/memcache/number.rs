//! Numbers in text: read as C's strtol reads a whole word, written without an allocation.

use bytes::{BufMut, BytesMut};

/// Digits, with an optional plus.
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Digits, with an optional sign.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        // Read as it stands: "-+5" is no number.
        Some(digits) if digits.first().is_some_and(u8::is_ascii_digit) => {
            0i64.checked_sub_unsigned(unsigned(digits)?)
        }
        Some(_) => None,
        None => i64::try_from(unsigned(word)?).ok(),
    }
}

/// A number in decimal, on the stack.
pub(super) struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: usize,
}

impl Decimal {
    pub fn of(mut number: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; DIGITS_MAX], start: DIGITS_MAX };
        loop {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// Appends a number in decimal.
pub(super) fn put(number: u64, out: &mut BytesMut) {
    out.put_slice(Decimal::of(number).as_bytes());
}

/// 2⁶⁴ − 1 has twenty.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_numbers() {
        let table: [(&str, Option<u64>, Option<i64>); 12] = [
            ("0", Some(0), Some(0)),
            ("007", Some(7), Some(7)),
            ("+7", Some(7), Some(7)),
            ("-7", None, Some(-7)),
            ("-+7", None, None),
            ("", None, None),
            ("+", None, None),
            ("-", None, None),
            ("7x", None, None),
            ("18446744073709551615", Some(u64::MAX), None),
            ("18446744073709551616", None, None),
            ("-9223372036854775808", None, Some(i64::MIN)),
        ];
        for (word, natural, integer) in table {
            assert_eq!(unsigned(word.as_bytes()), natural, "{word}");
            assert_eq!(signed(word.as_bytes()), integer, "{word}");
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 12345, u64::MAX] {
            assert_eq!(Decimal::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
