//! Keys in base64 (RFC 4648, with its padding), which meta commands may use for keys with any bytes.

/// The bytes that `word` stands for, or `None` when it stands for none.
pub(super) fn decode(word: &[u8]) -> Option<Vec<u8>> {
    if word.is_empty() || !word.len().is_multiple_of(4) {
        return None;
    }
    let padding = word.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(word.len() / 4 * 3);
    for four in word[..word.len() - padding].chunks(4) {
        let mut bits = 0u32;
        for &letter in four {
            bits = bits << 6 | six_bits(letter)?;
        }
        bits <<= 6 * (4 - four.len());
        let [_, first, second, third] = bits.to_be_bytes();
        bytes.extend_from_slice(&[first, second, third][..four.len() - 1]);
        // Two words must not name one key: the bits that the padding cuts off are zero.
        let cut = [first, second, third].iter().skip(four.len() - 1).any(|&byte| byte != 0);
        if cut {
            return None;
        }
    }
    Some(bytes)
}

fn six_bits(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_base64() {
        let table: [(&str, Option<&[u8]>); 14] = [
            ("YWJj", Some(b"abc")),
            ("YWI=", Some(b"ab")),
            ("YQ==", Some(b"a")),
            ("/+8=", Some(b"\xff\xef")),
            ("YSBi", Some(b"a b")),
            ("YWJjYQ==", Some(b"abca")),
            ("", None),
            ("YWJ", None),
            ("Y===", None),
            ("====", None),
            ("YWJj=", None),
            ("!!!!", None),
            ("YQ==YQ==", None),
            ("YR==", None),
        ];
        for (word, bytes) in table {
            assert_eq!(decode(word.as_bytes()).as_deref(), bytes, "{word}");
        }
    }
}
