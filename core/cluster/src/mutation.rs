//! Unsafe rules, kept so that the models and the simulator can show why they were dropped. Each breaks one sentence
//! of the design; with the feature `mutants` off, asking for one is the constant `false`.

/// One rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A replica shows a version that may not be committed.
    ReplicaShowsDirty,
    /// A primary shows the new version before all have acknowledged it.
    PrimaryShowsPending,
    /// A new primary serves at once.
    NoSettlement,
    /// A settlement begun in an older space goes on with the answers it has.
    SettlementNotRestarted,
    /// A fault is logged before the server's lease ran out.
    FaultBeforeLeaseEnd,
    /// Reads and negative answers need neither lease nor confirmation.
    ReadWithoutLease,
    /// Negative answers alone need neither.
    NegativeWithoutLease,
    /// The first owner in the write ring orders the key.
    WriteRingPrimary,
    /// Who is no owner any more need not have confirmed that it knows.
    OldMembersForgotten,
    /// A space that follows says nothing more of who has not confirmed the one before.
    OldMembersNotCarried,
    /// Writes under way are not sent to who is new among those that acknowledge.
    PendingNotSentToNew,
    /// A copy takes versions that are not committed.
    CopyPending,
    /// A copy takes the ids of writes that are not committed.
    CopyPendingIds,
    /// Any owner streams a copy, not the primary alone.
    CopyFromAnyOwner,
    /// A record from before the server became Catching wins when its stamp is greater.
    CatchingOldWins,
    /// Tombstones are collected while a copy runs.
    CollectDuringCopy,
    /// The next primary does not learn the ids of requests.
    IdsNotCarried,
    /// A server back from its disk executes retries whose ids it has forgotten.
    NoIdFloor,
    /// A try that was sent before this server led the key is executed.
    LateTryExecuted,
    /// A frame of a write that is committed already is stored again.
    CommittedTakenAgain,
    /// A version that could not be read when a settlement asked for it counts as any other.
    UnlistedKept,
    /// A frame that has not come is acknowledged with those that have.
    AcknowledgedAhead,
    /// A number under which a write that is committed was sent goes out again, with what the key has under way now.
    NumberUsedAgain,
    /// A frame that comes late takes the place of the later one under which its write was sent again.
    MarkLowered,
    /// A settlement takes a write that this server has and cannot read for one that was never done.
    UnreadableDisowned,
    /// A restarted process goes on under its old incarnation.
    RestartGoesOn,
    /// A new master does not wait until leases of the one before have run out.
    NewMasterDoesNotWait,
    /// A manager that does not lead any more is obeyed.
    StaleTermAccepted,
    /// A server whose fault is put up, and not executed yet, gets leases again.
    LeaseWhileCondemned,
    /// The switch is put up without asking how far the copies are.
    SwitchUnreported,
    /// Old members are let go though they have not confirmed the switch.
    ClearedUnconfirmed,
    /// What a server reported in an earlier space counts in the current one.
    OldReportsCount,
    /// A copy is done though its receiver lacks what was left out because it was under way.
    LeftOutForgotten,
    /// A copy is said to be done before it is safe from a loss of power.
    CopyUnsafe,
    /// A flush is done before its tombstones are committed.
    FlushEarly,
    /// A flush passes over keys with a write under way.
    FlushPassesPending,
    /// A flush that comes late, or twice, is carried out again.
    FlushAgain,
    /// Writes are taken however few copies there would be.
    FewCopiesTaken,
    /// Of lost owners the one that was lost first leads what they had.
    FirstLostLeads,
    /// A restarted server serves what the life before it was to drop.
    LeftoversForgotten,
    /// A rebuild does not wait for all who act in the ring that it takes.
    RebuiltTooSoon,
    /// A new generation of numbers is told to everybody before all who act keep it.
    RisenTold,
    /// After a rebuild gateways get ids that the cell of before had given to others.
    GatewaysNumberedAgain,
}

/// The rule that a core leaves out, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken(pub Option<Mutation>);

impl Broken {
    pub fn is(self, mutation: Mutation) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(mutation)
    }
}
