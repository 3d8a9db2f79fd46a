//! What somebody may have meant.

/// The name that is nearest to what was written, if one is near.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = (written.chars().count() / 3).clamp(1, DISTANCE_MAX) + 1;
    let (distance, name) = names.into_iter().map(|name| (distance(written, name), name)).min()?;
    (distance < far).then_some(name)
}

/// Letters to put in, take out or change, and neighbours to swap, until one is the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let changed = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Beyond, it is another word.
const DISTANCE_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_through_and_another_word_is_not() {
        let names = ["store", "sync", "min-copies", "log"];
        for (written, meant) in [
            ("stroe", Some("store")),
            ("stor", Some("store")),
            ("min_copies", Some("min-copies")),
            ("mincopies", Some("min-copies")),
            ("log", Some("log")),
            ("port", None),
            ("service-host", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), meant, "{written}");
        }
    }

    #[test]
    fn a_distance_is_the_same_both_ways() {
        for (one, other, apart) in
            [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("abc", "adc", 1), ("abcd", "bcde", 2)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (apart, apart));
        }
    }
}
