//! The formulas of seed 004, part II, and those of the store. Failures are summed as failures, never as what is left of
//! one, so that a chance of 10⁻²⁰ is still told from nothing.

/// How many of `replicas` must be lost before no majority is left: the seed's [N/2], which rounds up (its tables need
/// that), and for a pair gives the seed's 2r.
pub fn losses(replicas: u32) -> u32 {
    replicas.div_ceil(2)
}

/// The chance that a cell has no majority: the exact sum of binomials.
pub fn cell_failure(replicas: u32, rate: f64) -> f64 {
    at_least(replicas, losses(replicas), rate)
}

/// The first term of that sum without the survivors' factor, by which the seed approximates it: `C(N, [N/2]) r^[N/2]`.
pub fn cell_failure_leading(replicas: u32, rate: f64) -> f64 {
    let losses = losses(replicas);
    choose(replicas, losses) * power(rate, losses)
}

/// The chance that nobody is left: `r^N`.
pub fn all_lost(machines: u32, rate: f64) -> f64 {
    power(rate, machines)
}

/// The chance that somebody is lost: `1 − (1 − r)^N`.
pub fn any_lost(machines: u32, rate: f64) -> f64 {
    over(f64::from(machines), rate)
}

/// What one machine costs that fails as rarely as `r^[N/2]`, against N machines of rate r, when cost is inverse to the
/// rate: `1 / (N r^([N/2] − 1))`, the seed's.
pub fn cost_ratio(replicas: u32, rate: f64) -> f64 {
    1.0 / (f64::from(replicas) * power(rate, losses(replicas) - 1))
}

/// The same for one machine that fails as rarely as the cell really does. The seed leaves the binomial coefficient out
/// of the goal, and so asks more of the one machine than of the cell.
pub fn cost_ratio_exact(replicas: u32, rate: f64) -> f64 {
    rate / (f64::from(replicas) * cell_failure(replicas, rate))
}

/// The chance in `share` of the time that `rate` is of: `1 − (1 − r)^share`.
pub fn over(share: f64, rate: f64) -> f64 {
    -(share * (-rate).ln_1p()).exp_m1()
}

/// How the store's keys are spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub servers: u32,
    pub copies: u32,
    /// Of all sets of so many servers, how many are the owners of some key.
    pub owner_share: f64,
}

impl Spread {
    /// The chance that some key loses all copies when every server is lost with `window_rate`: the sum over k lost
    /// servers of `C(S, k) q^k (1 − q)^(S − k)` times the chance that an owner set is among them.
    pub fn some_key_lost(self, window_rate: f64) -> f64 {
        (self.copies..=self.servers)
            .map(|lost| exactly(self.servers, lost, window_rate) * self.hit(choose(lost, self.copies)))
            .sum()
    }

    /// The same if every set of servers were some key's owners: at least C of S lost. Never too low.
    pub fn some_key_lost_max(self, window_rate: f64) -> f64 {
        at_least(self.servers, self.copies, window_rate)
    }

    /// The chance over the whole time that `rate` is of, in which a lost server's copies are back after `repair_share`
    /// of it. Servers that are up are lost at `λ = −ln(1 − r)` each; each is away `u = λw / (1 + λw)` of the time; and a
    /// loss is a key's last copy when its other C − 1 owners are away at that moment, and no key was lost before. Away
    /// servers are taken as independent of what has not happened yet, which is a little too pessimistic: by less than a
    /// tenth while few are away at a time.
    pub fn some_key_lost_ever(self, rate: f64, repair_share: f64) -> f64 {
        let losses = -(-rate).ln_1p();
        let away = losses * repair_share / (1.0 + losses * repair_share);
        let (others, needed) = (self.servers - 1, self.copies - 1);
        let (mut safe, mut fatal) = (0.0, 0.0);
        for lost in 0..=others {
            let so_far = exactly(others, lost, away) * (1.0 - self.hit(choose(lost, self.copies)));
            safe += so_far;
            fatal += so_far * self.hit(choose(lost, needed));
        }
        -(-losses * (1.0 - away) * f64::from(self.servers) * fatal / safe).exp_m1()
    }

    /// The chance that at least one of so many sets of servers is an owner set, as if each were drawn by itself.
    fn hit(self, sets: f64) -> f64 {
        if self.owner_share >= 1.0 {
            return if sets > 0.0 { 1.0 } else { 0.0 };
        }
        -(sets * (-self.owner_share).ln_1p()).exp_m1()
    }
}

/// The chance that `lost` or more of `all` are lost.
fn at_least(all: u32, lost: u32, rate: f64) -> f64 {
    (lost..=all).map(|lost| exactly(all, lost, rate)).sum()
}

/// The chance that exactly `lost` of `all` are lost.
fn exactly(all: u32, lost: u32, rate: f64) -> f64 {
    let share = |place: u32| f64::from(all - lost + place) / f64::from(place) * rate;
    (1..=lost).map(share).product::<f64>() * power(1.0 - rate, all - lost)
}

/// The binomial coefficient. Finite: nobody counts more than [`MACHINES_MAX`].
pub fn choose(all: u32, some: u32) -> f64 {
    if some > all {
        return 0.0;
    }
    (1..=some).map(|place| f64::from(all - some + place) / f64::from(place)).product()
}

fn power(base: f64, exponent: u32) -> f64 {
    base.powi(exponent as i32)
}

/// Machines in one question: 1000 over 500 is the last such coefficient that a floating point number holds.
pub const MACHINES_MAX: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() <= 1e-12 * right.abs(), "{left} {right}");
    }

    #[test]
    fn a_sum_of_all_cases_is_certainty() {
        for (all, rate) in [(1, 0.5), (7, 0.03), (1000, 0.001), (1000, 0.5), (1000, 0.97)] {
            near(at_least(all, 0, rate), 1.0);
        }
    }

    #[test]
    fn a_pair_is_twice_as_bad_and_its_data_are_better_by_a_power() {
        near(cell_failure_leading(2, 0.01), 0.02);
        near(all_lost(2, 0.01), 0.0001);
    }

    #[test]
    fn rare_things_are_not_nothing() {
        near(cell_failure(7, 1e-6), 35e-24 * (1.0 - 1e-6f64).powi(3) * (1.0 + 0.6e-6));
        assert!(all_lost(7, 1e-9) > 0.0);
    }

    #[test]
    fn windows_of_a_time_make_up_that_time() {
        near(1.0 - (1.0 - over(0.1, 0.2)).powi(10), 0.2);
    }

    #[test]
    fn with_every_set_an_owner_set_the_bound_is_the_answer() {
        let spread = Spread { servers: 6, copies: 3, owner_share: 1.0 };
        near(spread.some_key_lost(0.1), spread.some_key_lost_max(0.1));
        let half = Spread { owner_share: 0.5, ..spread };
        assert!(half.some_key_lost(0.1) < half.some_key_lost_max(0.1));
    }

    #[test]
    fn one_copy_is_lost_with_the_first_server() {
        let spread = Spread { servers: 5, copies: 1, owner_share: 1.0 };
        near(spread.some_key_lost(0.02), any_lost(5, 0.02));
        near(spread.some_key_lost_ever(0.02, 1e-15), any_lost(5, 0.02));
    }
}
