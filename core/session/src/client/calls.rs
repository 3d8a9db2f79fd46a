//! The application's calls on its session: numbered requests, reads, events.

use super::asked::Asked;
use super::{Client, Command, Read};
use crate::front::{ENVELOPE_BYTES, QUERY_BYTES_MAX};
use crate::protocol::{Ask, ClientMessage, EndReason, Reply};
use crate::session::REPLY_BYTES_MAX;
use crate::step::{Answer, CallError, ClientEffect};
use bytes::Bytes;
use kumo_paxos::{OUT_OF_BAND_MAX, Time};
use std::net::SocketAddr;

impl Client {
    pub(super) fn command(&mut self, ticket: u64, command: Bytes, effects: &mut Vec<ClientEffect>) {
        if ENVELOPE_BYTES + command.len() > OUT_OF_BAND_MAX {
            let most = OUT_OF_BAND_MAX - ENVELOPE_BYTES;
            let reason = format!("a command of {} bytes exceeds the limit of {most}", command.len());
            return done(ticket, Err(CallError::Refused(reason)), effects);
        }
        let full = self.command_bytes > 0 && self.command_bytes + command.len() > COMMAND_BYTES_MAX;
        if self.failure.is_none() && (full || self.commands.len() >= COMMANDS_MAX) {
            return done(ticket, Err(CallError::Busy), effects);
        }
        self.number(ticket, Ask::Command(command), effects);
    }

    /// Gives a request its number. From here on it is sent until it is answered or the session is lost.
    pub(super) fn number(&mut self, ticket: u64, ask: Ask, effects: &mut Vec<ClientEffect>) {
        match &self.failure {
            Some(error) => done(ticket, Err(error.clone()), effects),
            None => self.put(Some(ticket), ask),
        }
    }

    fn put(&mut self, ticket: Option<u64>, ask: Ask) {
        self.command_bytes += weight(&ask);
        self.commands.insert(self.next_number, Command { ticket, ask, asked: Asked::default() });
        self.next_number += 1;
        self.calls_at = Some(Time(0));
    }

    /// Takes an answered request out.
    pub(super) fn take(&mut self, number: u64) -> Option<Command> {
        let command = self.commands.remove(&number)?;
        self.command_bytes -= weight(&command.ask);
        self.answered_max = self.answered_max.max(number);
        Some(command)
    }

    /// Large replies are acknowledged at once when others are waited for, and not by the next request, for which these
    /// may be waited for: the cell holds them back while it remembers too much. A cancel of what was answered
    /// does nothing else.
    pub(super) fn acknowledge_large(&mut self, number: u64, reply: &Reply) {
        if let Reply::Body(body) = reply {
            self.reply_bytes += body.len();
        }
        if self.reply_bytes >= ACKNOWLEDGE_BYTES && !self.commands.is_empty() {
            self.put(None, Ask::Cancel { target: number });
        }
    }

    pub(super) fn close(&mut self, ticket: u64, effects: &mut Vec<ClientEffect>) {
        match &self.failure {
            // It is over: what was asked for is the case.
            Some(CallError::Ended(EndReason::Closed | EndReason::Expired | EndReason::Killed)) => {
                done(ticket, Ok(Answer::Done), effects);
            }
            Some(error) => done(ticket, Err(error.clone()), effects),
            None => self.put(Some(ticket), Ask::Close),
        }
    }

    pub(super) fn read(&mut self, ticket: u64, query: Bytes, effects: &mut Vec<ClientEffect>) {
        if let Some(error) = &self.failure {
            return done(ticket, Err(error.clone()), effects);
        }
        if query.len() > QUERY_BYTES_MAX {
            let reason = format!("a query of {} bytes exceeds the limit of {QUERY_BYTES_MAX}", query.len());
            return done(ticket, Err(CallError::Refused(reason)), effects);
        }
        if self.reads.len() >= READS_MAX {
            return done(ticket, Err(CallError::Busy), effects);
        }
        let tag = self.tag();
        self.reads.insert(tag, Read { ticket, query, asked: Asked::default() });
        self.calls_at = Some(Time(0));
    }

    pub(super) fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    pub(super) fn events(&mut self, ticket: u64, effects: &mut Vec<ClientEffect>) {
        if let Some(error) = &self.failure {
            return done(ticket, Err(error.clone()), effects);
        }
        if self.event_tickets.len() >= EVENT_CALLS_MAX {
            return done(ticket, Err(CallError::Busy), effects);
        }
        if self.event_tickets.is_empty() {
            self.ask_events();
        }
        self.event_tickets.push_back(ticket);
    }

    /// The next question for events is a new one: a late answer to the last is not its answer.
    pub(super) fn ask_events(&mut self) {
        self.event_tag = self.tag();
        self.event_asked = Asked::default();
        self.calls_at = Some(Time(0));
    }

    pub(super) fn cancel(&mut self, ticket: u64, effects: &mut Vec<ClientEffect>) {
        let command = self.commands.iter().find(|(_, command)| command.ticket == Some(ticket));
        if let Some((&target, _)) = command {
            // The reply decides which was quicker.
            return self.put(None, Ask::Cancel { target });
        }
        let read = self.reads.iter().find(|(_, read)| read.ticket == ticket).map(|(tag, _)| *tag);
        let question =
            self.questions.iter().find(|(_, question)| question.ticket == ticket).map(|(tag, _)| *tag);
        let event = self.event_tickets.iter().position(|waits| *waits == ticket);
        if let Some(tag) = read {
            self.reads.remove(&tag);
        } else if let Some(tag) = question {
            self.questions.remove(&tag);
        } else if let Some(place) = event {
            self.event_tickets.remove(place);
        } else {
            return;
        }
        done(ticket, Err(CallError::Cancelled), effects);
    }

    /// Sends everything that is new or overdue, requests in the order of their numbers.
    pub(super) fn send_calls(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        if self.calls_at.is_none_or(|at| now < at) {
            return;
        }
        if self.failure.is_none() && self.open.is_some() {
            self.send_commands(now, effects);
            self.send_reads(now, effects);
            self.send_events(now, effects);
        }
        self.send_questions(now, effects);
        self.calls_at = self.next_call_at(now);
    }

    /// The earliest time something that was sent is overdue. What could not be sent waits for a connection,
    /// which sets the time by itself.
    fn next_call_at(&self, now: Time) -> Option<Time> {
        let commands = self.commands.values().map(|command| &command.asked);
        let reads = self.reads.values().map(|read| &read.asked);
        let events = (!self.event_tickets.is_empty()).then_some(&self.event_asked);
        let questions = self.questions.values().map(|question| &question.asked);
        commands
            .chain(reads)
            .chain(events)
            .chain(questions)
            .filter_map(Asked::again_at)
            .filter(|at| *at > now)
            .min()
    }

    fn send_commands(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        let Some(master) = self.links.ready_master() else { return };
        let Some(session) = self.session() else { return };
        let (floor, acknowledged, unanswered) = self.acknowledgement();
        let resend = self.settings.resend_micros;
        let (events_seen, mut overdue) = (self.events_seen, None);
        let (mut sent, mut acknowledges) = (Vec::new(), false);
        for (&number, command) in &mut self.commands {
            if !command.asked.is_due(now, master) {
                continue;
            }
            overdue = overdue.or(command.asked.sent_at());
            let (bytes, new) = (weight(&command.ask), command.asked.first().is_none());
            // A large command is on its way for longer.
            command.asked.sent(now, master, resend + bytes as u64 / BYTES_PER_MICRO);
            // Beside the very largest command there is no room for a list.
            let room = OUT_OF_BAND_MAX.saturating_sub(ENVELOPE_BYTES + bytes) / size_of::<u64>();
            let (acknowledged, unanswered) = if unanswered.len() > room {
                (floor, Vec::new())
            } else {
                (acknowledged, unanswered.clone())
            };
            // One that is sent again may be executed already: then what it acknowledges is not heard.
            acknowledges |= new && acknowledged >= self.answered_max;
            let ask = command.ask.clone();
            sent.push(ClientMessage::Request { session, number, acknowledged, unanswered, events_seen, ask });
        }
        if acknowledges {
            self.reply_bytes = 0;
        }
        if !sent.is_empty() {
            self.attach(master, effects);
            effects.extend(sent.into_iter().map(|message| ClientEffect::Send(master, message)));
        }
        if let Some(since) = overdue {
            self.links.suspect(now, since);
        }
    }

    /// Which replies have arrived: all up to the first number; and all up to the second but for those listed.
    fn acknowledgement(&self) -> (u64, u64, Vec<u64>) {
        let floor = self.commands.keys().next().copied().unwrap_or(self.next_number) - 1;
        let unanswered: Vec<u64> =
            self.commands.range(..self.answered_max).map(|(number, _)| *number).collect();
        let long = unanswered.len() > LISTED_ALWAYS && self.reply_bytes < ACKNOWLEDGE_BYTES;
        if unanswered.is_empty() || long && self.answered_max <= floor + ACKNOWLEDGE_SPAN {
            return (floor, floor, Vec::new());
        }
        (floor, self.answered_max, unanswered)
    }

    fn send_reads(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        let Some(session) = self.session() else { return };
        let tags: Vec<u64> = self.reads.keys().copied().collect();
        for tag in tags {
            let tries = self.reads.get(&tag).map_or(0, |read| read.asked.tries());
            let Some(to) = self.read_target(now, tries, effects) else { return };
            let Some(read) = self.reads.get_mut(&tag) else { continue };
            // A read that waits at a member that can still answer stays there until it is overdue.
            let waits = read.asked.again_at().is_some_and(|again| now < again);
            if waits && (!self.settings.sync || read.asked.to() == Some(to)) {
                continue;
            }
            if self.settings.sync
                && let Some(since) = read.asked.sent_at()
            {
                self.links.suspect(now, since);
            }
            read.asked.sent(now, to, self.settings.resend_micros);
            let (after, linear, query) = (self.updated, self.settings.sync, read.query.clone());
            self.attach(to, effects);
            let message = ClientMessage::Read { session, tag, after, linear, query };
            effects.push(ClientEffect::Send(to, message));
        }
    }

    fn read_target(&mut self, now: Time, tries: u32, effects: &mut Vec<ClientEffect>) -> Option<SocketAddr> {
        if self.settings.sync {
            return self.links.ready_master();
        }
        let targets = self.links.read_targets(tries);
        if let Some(best) = targets.first() {
            self.links.want(now, *best, effects);
        }
        targets.into_iter().find(|target| self.links.is_up(*target))
    }

    /// Events are asked for at the master, which has them first.
    fn send_events(&mut self, now: Time, effects: &mut Vec<ClientEffect>) {
        let (Some(open), Some(master)) = (&self.open, self.links.ready_master()) else { return };
        if self.event_tickets.is_empty() || !self.event_asked.is_due(now, master) {
            return;
        }
        // There may be none for long: the question is repeated at leisure, in case it was lost.
        let (session, again) = (open.session, open.timeout_micros);
        self.event_asked.sent(now, master, again);
        self.attach(master, effects);
        let (tag, after, executed) = (self.event_tag, self.events_seen, self.updated);
        effects.push(ClientEffect::Send(master, ClientMessage::Events { session, tag, after, executed }));
    }
}

pub(super) fn done(ticket: u64, result: Result<Answer, CallError>, effects: &mut Vec<ClientEffect>) {
    effects.push(ClientEffect::Done(ticket, result));
}

fn weight(ask: &Ask) -> usize {
    match ask {
        Ask::Command(command) => command.len(),
        Ask::Cancel { .. } | Ask::Close | Ask::Kill { .. } => 0,
    }
}

/// Requests outstanding in a session. The cell remembers four times as many replies.
pub(super) const COMMANDS_MAX: usize = 256;

/// Their bytes: two of the largest.
const COMMAND_BYTES_MAX: usize = 2 * OUT_OF_BAND_MAX;

/// Reads outstanding in a session.
const READS_MAX: usize = 1024;

/// Calls for events outstanding in a session: one would do.
const EVENT_CALLS_MAX: usize = 16;

/// So many unanswered requests are listed in every request: the replies after them may be large.
const LISTED_ALWAYS: usize = 16;

/// So far behind the newest reply may the oldest of more unanswered requests be before they are listed.
const ACKNOWLEDGE_SPAN: u64 = 64;

/// Replies of so many bytes are acknowledged without waiting for a request: a quarter of what the cell remembers before
/// it holds back.
const ACKNOWLEDGE_BYTES: usize = REPLY_BYTES_MAX / 4;

/// 8 MB a second: the slowest network a large command is given time for.
const BYTES_PER_MICRO: u64 = 8;
