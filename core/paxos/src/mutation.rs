//! The unsafe rules that were dropped, kept so that the model checker can show why. Each breaks one sentence of
//! the design; with the feature `mutants` off, asking for one is the constant `false`.

/// One rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A proposer begins an instance with lasts from a majority of some other configuration.
    LastsNotPerConfiguration,
    /// An incarnation outside an instance's configuration begins it, in a round that it does not promise itself.
    ForeignProposer,
    /// Rounds are (sequence, id): a paused twin shares them with its successor.
    RoundsWithoutIncarnation,
    /// A learner votes as soon as it has executed the entry at m that names it, not at m + W.
    LearnerVotesEarly,
    /// An instance is begun though the entries that decide its configuration are not executed.
    BeginBeyondWindow,
    /// A replaced member leaves without waiting for a majority of its successors.
    LeavesEarly,
    /// Everybody who hears "new" from all others forms a cell.
    SymmetricForming,
    /// A begin is accepted without raising the promise.
    BeginKeepsPromise,
    /// Accepts of an earlier round count in a later one.
    AcceptsSurviveRound,
    /// Accepted values are dropped when executed, and lasts do not name the executed position.
    AcceptedDropped,
    /// A restarted voter answers collects at once, though its earlier life granted a lease.
    RestartAnswersCollect,
    /// A change of members is proposed without a live majority of the new ones.
    ChangeUnchecked,
}
