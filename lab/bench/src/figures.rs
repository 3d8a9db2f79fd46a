//! Arithmetic of repeats: medians, spreads and ratios.

/// The middle of them; of an even number the mean of the two in the middle. Of none: `None`.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// From the least to the largest, as a part of the median.
pub fn spread(values: &[f64]) -> Option<f64> {
    let median = median(values).filter(|&median| median > 0.0)?;
    let (least, most) = bounds(values)?;
    Some((most - least) / median)
}

pub fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// How many times as much one does as another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Ratio {
    /// Of runs that were made in turn: each is compared with the one beside it, not with the other's median, so
    /// that a slow minute of the machine slows both sides of a ratio.
    pub fn of(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
        let pairs = ours.iter().zip(theirs).filter(|&(_, &theirs)| theirs > 0.0);
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
        let (least, most) = bounds(&ratios)?;
        Some(Ratio { median: median(&ratios)?, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_spread_is_a_part_of_the_median() {
        assert_eq!(spread(&[90.0, 100.0, 120.0]), Some(0.3));
        assert_eq!(spread(&[7.0]), Some(0.0));
        assert_eq!(spread(&[0.0, 0.0]), None, "there is no part of nothing");
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn a_ratio_compares_runs_made_side_by_side() {
        // The machine was half as fast in the second round: the ratio does not care.
        let ratio = Ratio::of(&[400.0, 200.0, 440.0], &[100.0, 50.0, 100.0]).unwrap();
        assert_eq!(ratio, Ratio { median: 4.0, least: 4.0, most: 4.4 });
        assert_eq!(Ratio::of(&[1.0], &[0.0]), None);
        assert_eq!(Ratio::of(&[], &[]), None);
    }
}
