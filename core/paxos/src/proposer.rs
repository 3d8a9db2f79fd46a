//! [`Proposer`]: one round of one incarnation: what it collected, what it has begun.

use crate::configuration::Configuration;
use crate::identity::{Incarnation, Instance, Round};
use crate::message::Report;
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A round under way, from the first collect until a stronger round ends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposer {
    pub round: Round,
    /// Who promised, and up to which instance its reports are here (`None`: all of them).
    lasts: BTreeMap<Incarnation, Option<Instance>>,
    /// The greatest executed position named in any last: at or below it nothing is begun, it is caught up.
    floor: Instance,
    /// What the promisers accepted in earlier rounds.
    reports: BTreeMap<Instance, BTreeMap<Incarnation, (Round, Value)>>,
    /// The greatest instance in `reports`.
    top: Instance,
    /// Begun and not known decided.
    open: BTreeMap<Instance, Open>,
    /// The next instance to begin.
    next: Instance,
    /// Everything that earlier rounds may have decided is executed: from now on this is the master.
    pub recovered: bool,
}

/// An instance begun in this round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    pub value: Value,
    pub accepted: BTreeSet<Incarnation>,
}

impl Proposer {
    pub fn new(round: Round, next: Instance) -> Proposer {
        Proposer {
            round,
            lasts: BTreeMap::new(),
            floor: Instance(0),
            reports: BTreeMap::new(),
            top: Instance(0),
            open: BTreeMap::new(),
            next,
            recovered: false,
        }
    }

    /// Takes in a last for instances `from` up to below `next`; what is below `here` is decided here. Returns
    /// where to go on collecting, if anywhere.
    pub fn last(
        &mut self,
        here: Instance,
        sender: Incarnation,
        executed: Instance,
        from: Instance,
        next: Option<Instance>,
        reports: Vec<Report>,
    ) -> Option<Instance> {
        let known = match self.lasts.get(&sender) {
            Some(None) => return None,
            Some(Some(known)) => here.max(*known),
            None => here,
        };
        // A part that does not join what is known leaves a gap: only joined parts count.
        if from > known.max(executed.next()) {
            return Some(known);
        }
        self.floor = self.floor.max(executed);
        for report in reports {
            let Some(round) = report.round else { continue };
            self.top = self.top.max(report.instance);
            self.reports.entry(report.instance).or_default().insert(sender, (round, report.value));
        }
        self.lasts.insert(sender, next);
        next
    }

    /// Whether that incarnation's promise is here, with its reports on `instance`.
    pub fn promised(&self, sender: Incarnation, instance: Instance) -> bool {
        self.lasts.get(&sender).is_some_and(|next| next.is_none_or(|next| next > instance))
    }

    /// Whether all reports of that incarnation are here.
    pub fn complete(&self, sender: Incarnation) -> bool {
        self.lasts.get(&sender) == Some(&None)
    }

    /// Where to go on collecting from that incarnation.
    pub fn collect_from(&self, sender: Incarnation, executed: Instance) -> Instance {
        self.lasts.get(&sender).copied().flatten().unwrap_or(executed.next())
    }

    pub fn collected(&self, configuration: &Configuration, instance: Instance) -> bool {
        configuration.majority(|incarnation| self.promised(incarnation, instance))
    }

    /// The strongest value reported by the instance's own voters; it may be decided already.
    pub fn inherited(&self, configuration: &Configuration, instance: Instance) -> Option<Value> {
        let reports = self.reports.get(&instance)?;
        let counted = reports.iter().filter(|(incarnation, _)| configuration.is_voter(**incarnation));
        counted.map(|(_, accepted)| accepted).max_by_key(|(round, _)| *round).map(|(_, value)| value.clone())
    }

    pub fn floor(&self) -> Instance {
        self.floor
    }

    /// Instances up to here may have been decided by earlier rounds.
    pub fn inherited_upto(&self) -> Instance {
        self.top.max(self.floor)
    }

    pub fn next(&self) -> Instance {
        self.next
    }

    pub fn skip_to(&mut self, next: Instance) {
        self.next = next;
    }

    pub fn begin(&mut self, value: Value) -> Instance {
        let instance = self.next;
        self.open.insert(instance, Open { value, accepted: BTreeSet::new() });
        self.next = instance.next();
        instance
    }

    /// Whether a change of members is begun or inherited, and not decided.
    pub fn changes(&self) -> bool {
        let open = self.open.values().map(|open| &open.value);
        let inherited = self.reports.values().flat_map(|reports| reports.values()).map(|(_, value)| value);
        open.chain(inherited).any(|value| matches!(value, Value::Config(_)))
    }

    pub fn open(&self) -> &BTreeMap<Instance, Open> {
        &self.open
    }

    /// Counts an accept; an accept repeated is an accept once. Gives the value when a majority has accepted.
    pub fn accepted(
        &mut self,
        sender: Incarnation,
        instance: Instance,
        configuration: &Configuration,
    ) -> Option<Value> {
        // A late or repeated accept finds nothing open: it is decided already.
        let open = self.open.get_mut(&instance)?;
        open.accepted.insert(sender);
        if !configuration.majority(|incarnation| open.accepted.contains(&incarnation)) {
            return None;
        }
        self.open.remove(&instance).map(|open| open.value)
    }

    /// Everything up to `executed` is behind us.
    pub fn forget(&mut self, executed: Instance) {
        while self.open.first_key_value().is_some_and(|(first, _)| *first <= executed) {
            self.open.pop_first();
        }
        while self.reports.first_key_value().is_some_and(|(first, _)| *first <= executed) {
            self.reports.pop_first();
        }
        self.next = self.next.max(executed.next());
    }
}
