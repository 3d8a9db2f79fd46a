//! The client, message by message.

use super::*;
use crate::protocol::{CellMessage, Label, Reply};
use kumo_paxos::Change;

const A: &str = "127.0.0.1:1";
const B: &str = "127.0.0.1:2";
const SESSION: SessionId = SessionId(1 << 48 | 1);

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

struct Script {
    client: Client,
    now: Time,
}

impl Script {
    fn new(session: bool) -> Script {
        let settings = ClientSettings {
            members: vec![at(A), at(B)],
            token: 4,
            sync: true,
            label: Label::default(),
            resend_micros: 1_000_000,
            patience_micros: 5_000_000,
            session,
        };
        Script { client: Client::new(settings, Time(1000)), now: Time(1000) }
    }

    /// A client whose session is open at A.
    fn open() -> Script {
        let mut script = Script::new(true);
        script.give(ClientInput::Timeout);
        script.give(ClientInput::Connected(at(A)));
        script.master(A, Some(A));
        script.say(
            A,
            CellMessage::Opened { token: 4, session: SESSION, instance: Instance(3), timeout_ms: 12_000 },
        );
        script
    }

    fn give(&mut self, input: ClientInput) -> Vec<String> {
        let mut effects = Vec::new();
        self.client.step(self.now, input, &mut effects);
        effects.into_iter().map(show).collect()
    }

    fn say(&mut self, from: &str, message: CellMessage) -> Vec<String> {
        self.give(ClientInput::Message(at(from), message))
    }

    fn master(&mut self, from: &str, master: Option<&str>) -> Vec<String> {
        let members = vec![at(A), at(B)];
        self.say(from, CellMessage::Master { master: master.map(at), members, least_loaded: None })
    }

    fn reply(&mut self, number: u64, reply: Reply) -> Vec<String> {
        self.say(A, CellMessage::Reply { session: SESSION, number, instance: Instance(9), reply })
    }

    fn command(&mut self, ticket: u64) -> Vec<String> {
        self.give(ClientInput::Command { ticket, command: Bytes::from_static(b"x") })
    }

    /// Sleeps as the edge would until `until`, and what happened.
    fn sleep(&mut self, until: u64) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..1000 {
            let Some(next) = self.client.deadline().filter(|next| next.0 <= until) else {
                self.now = Time(until);
                return all;
            };
            self.now = self.now.max(next);
            all.extend(self.give(ClientInput::Timeout));
        }
        panic!("the client does not sleep");
    }
}

fn show(effect: ClientEffect) -> String {
    match effect {
        ClientEffect::Connect(to) => format!("connect {}", to.port()),
        ClientEffect::Disconnect(to) => format!("disconnect {}", to.port()),
        ClientEffect::Done(ticket, Ok(answer)) => format!("done {ticket} {answer:?}"),
        ClientEffect::Done(ticket, Err(error)) => format!("failed {ticket} {error}"),
        ClientEffect::State(state) => format!("{state:?}"),
        ClientEffect::Send(to, message) => {
            let said = match message {
                ClientMessage::Open { .. } => "open".to_owned(),
                ClientMessage::Attach { .. } => "attach".to_owned(),
                ClientMessage::Request { number, acknowledged, unanswered, .. } => {
                    format!("request {number} ack {acknowledged} {unanswered:?}")
                }
                ClientMessage::Renew { .. } => "renew".to_owned(),
                ClientMessage::Read { after, .. } => format!("read after {}", after.0),
                ClientMessage::Events { after, .. } => format!("events after {after}"),
                ClientMessage::Who => "who".to_owned(),
                ClientMessage::Status { .. } => "status".to_owned(),
                ClientMessage::Sessions { .. } => "sessions".to_owned(),
                ClientMessage::Change { .. } => "change".to_owned(),
                ClientMessage::Transfer { .. } => "transfer".to_owned(),
                ClientMessage::Snapshot { .. } => "snapshot".to_owned(),
            };
            format!("{} {said}", to.port())
        }
    }
}

#[test]
fn the_master_is_found_from_any_member() {
    let mut script = Script::new(true);
    assert_eq!(script.give(ClientInput::Timeout), ["connect 1"]);
    assert_eq!(script.give(ClientInput::Disconnected(at(A))), ["connect 2"]);
    assert_eq!(script.give(ClientInput::Connected(at(B))), [""; 0]);
    assert_eq!(script.master(B, Some(A)), [""; 0]);
    assert_eq!(script.sleep(110_000), ["connect 1"]);
    assert_eq!(script.give(ClientInput::Connected(at(A))), ["1 open"]);
}

#[test]
fn who_is_not_master_sends_the_client_on() {
    let mut script = Script::open();
    assert_eq!(script.command(7), ["1 request 1 ack 0 []"]);
    assert_eq!(script.master(A, Some(B)), ["connect 2"]);
    assert_eq!(script.give(ClientInput::Connected(at(B))), ["2 attach", "2 request 1 ack 0 []"]);
    // Two replicas that name each other do not make it run in circles.
    let mut steps = 0;
    while !script.master(B, Some(A)).is_empty() || !script.master(A, Some(B)).is_empty() {
        steps += 1;
        assert!(steps < 10);
    }
}

#[test]
fn an_unanswered_request_is_sent_again_with_the_same_number() {
    let mut script = Script::open();
    assert_eq!(script.command(7), ["1 request 1 ack 0 []"]);
    assert_eq!(script.command(8), ["1 request 2 ack 0 []"]);
    let again = script.sleep(1_100_000);
    assert_eq!(again, ["1 request 1 ack 0 []", "1 request 2 ack 0 []", "connect 2"]);
    assert!(script.reply(1, Reply::Body(Bytes::from_static(b"y")))[0].starts_with("done 7"));
    // The connection breaks: what is left is sent on the next one, in order.
    assert_eq!(script.command(9), ["1 request 3 ack 1 []"]);
    assert_eq!(script.give(ClientInput::Disconnected(at(A))), ["connect 1"]);
    let resent = script.give(ClientInput::Connected(at(A)));
    assert_eq!(resent, ["1 attach", "1 request 2 ack 1 []", "1 request 3 ack 1 []"]);
    // A reply that comes twice is one reply.
    assert_eq!(script.reply(1, Reply::Body(Bytes::new())), [""; 0]);
}

#[test]
fn replies_behind_a_request_that_waits_are_acknowledged_one_by_one() {
    let mut script = Script::open();
    script.command(1);
    for number in 2..=100 {
        script.command(number);
        script.reply(number, Reply::Body(Bytes::new()));
    }
    assert_eq!(script.command(101), ["1 request 101 ack 100 [1]"]);
}

#[test]
fn more_calls_than_may_be_outstanding_are_busy() {
    let mut script = Script::open();
    for ticket in 0..calls::COMMANDS_MAX as u64 {
        script.command(ticket);
    }
    assert_eq!(script.command(1000), ["failed 1000 too many calls under way"]);
    script.reply(1, Reply::Cancelled);
    assert_eq!(script.command(1001).len(), 1);
}

#[test]
fn a_read_names_the_last_update() {
    let mut script = Script::open();
    let read = |ticket| ClientInput::Read { ticket, query: Bytes::new() };
    assert_eq!(script.give(read(1)), ["1 read after 3"]);
    script.command(2);
    script.reply(1, Reply::Body(Bytes::new()));
    assert_eq!(script.give(read(3)), ["1 read after 9"]);
    assert_eq!(script.give(ClientInput::Cancel { ticket: 3 }), ["failed 3 cancelled"]);
}

#[test]
fn renewals_keep_the_session_and_silence_loses_it() {
    let mut script = Script::open();
    let opened = script.now.0;
    assert_eq!(script.sleep(opened + 4_000_000), ["1 renew"]);
    let sent = script.now.0;
    script.say(A, CellMessage::Renewed { session: SESSION, sent });
    // Answered: the next is due a third of the time-out after that one was sent.
    assert_eq!(script.sleep(sent + 3_900_000), [""; 0]);
    let silence = script.sleep(sent + 12_000_000);
    let states: Vec<_> = silence.iter().filter(|line| *line == "Jeopardy" || *line == "Lost").collect();
    assert_eq!(states, ["Jeopardy", "Lost"]);
    assert!(silence.iter().filter(|line| *line == "1 renew").count() >= 3);
    assert_eq!(script.command(5), ["failed 5 session lost: no renewal within its timeout"]);
    assert_eq!(script.client.deadline(), None);
}

#[test]
fn an_answer_that_comes_when_the_session_may_be_over_is_not_handed_out() {
    let granted = || Reply::Body(Bytes::from_static(b"granted"));
    // It stood still for longer than the time-out, and the grant came in before the news of its end.
    let mut script = Script::open();
    script.command(7);
    script.command(8);
    script.now = script.now.plus_micros(12_000_000);
    let lost = "session lost: no renewal within its timeout";
    let all = script.reply(1, granted());
    assert_eq!(all, ["Lost", &format!("failed 7 {lost}"), &format!("failed 8 {lost}"), "disconnect 1"]);
    assert_eq!(script.client.safe_until(), None);
    assert_eq!(script.reply(2, granted()), [""; 0]);

    // The answer to something sent later is a renewal itself.
    let mut script = Script::open();
    script.now = script.now.plus_micros(2_000_000);
    script.command(7);
    script.now = script.now.plus_micros(11_000_000);
    assert!(script.reply(1, granted())[0].starts_with("done 7"));
}

#[test]
fn events_are_handed_out_once_and_asked_for_from_there() {
    let mut script = Script::open();
    let events = |tag, first, count| CellMessage::Events {
        session: SESSION,
        tag,
        omitted: 0,
        first,
        events: vec![Bytes::new(); count],
    };
    assert_eq!(script.give(ClientInput::Events { ticket: 1 }), ["1 events after 0"]);
    let tag = script.client.event_tag;
    assert!(script.say(A, events(tag, 11, 3))[0].starts_with("done 1"));
    assert_eq!(script.say(A, events(tag, 11, 3)), [""; 0]);
    assert_eq!(script.give(ClientInput::Events { ticket: 2 }), ["1 events after 13"]);
    // A late answer to an earlier question is not this one's.
    assert_eq!(script.say(A, events(tag, 14, 1)), [""; 0]);
}

#[test]
fn opening_gives_up_after_its_patience() {
    let mut script = Script::new(true);
    script.give(ClientInput::Timeout);
    script.give(ClientInput::Disconnected(at(A)));
    script.give(ClientInput::Disconnected(at(B)));
    assert_eq!(script.command(1), [""; 0]);
    let all = script.sleep(3_000_000);
    assert!(all.iter().all(|line| line.starts_with("connect")), "{all:?}");
    for address in [A, B] {
        script.give(ClientInput::Disconnected(at(address)));
    }
    let all = script.sleep(6_000_000);
    assert!(all.contains(&"failed 1 no member answers".to_owned()), "{all:?}");
    assert_eq!(script.client.failure(), Some(&CallError::Unreachable));

    let mut script = Script::new(true);
    script.give(ClientInput::Timeout);
    script.give(ClientInput::Connected(at(A)));
    script.master(A, None);
    script.command(1);
    let all = script.sleep(6_000_000);
    assert!(all.contains(&"failed 1 the cell has no master".to_owned()), "{all:?}");
}

#[test]
fn questions_need_no_session() {
    let mut script = Script::new(false);
    assert_eq!(script.command(1), ["failed 1 no such session"]);
    assert_eq!(script.give(ClientInput::Status { ticket: 2 }), ["connect 1"]);
    // Any member will do for the status; orders are for the master.
    assert_eq!(script.give(ClientInput::Connected(at(A))), ["1 status"]);
    assert_eq!(script.give(ClientInput::Transfer { ticket: 3 }), [""; 0]);
    assert_eq!(script.master(A, Some(A)), ["1 transfer"]);
    let tag = *script.client.questions.keys().last().unwrap();
    let refused = Some("not the master".to_owned());
    assert_eq!(script.say(A, CellMessage::Done { tag, error: refused }), [""; 0]);
    assert_eq!(script.master(A, Some(A)), ["1 transfer"]);
    assert_eq!(script.say(A, CellMessage::Done { tag, error: None }), ["done 3 Done"]);
    let all = script.sleep(6_000_000);
    assert!(all.contains(&"failed 2 the cell has no master".to_owned()), "{all:?}");
}

#[test]
fn an_order_whose_member_went_away_is_not_given_twice() {
    let mut script = Script::new(false);
    let (change, member) = (Change::Add(at("127.0.0.1:9")), Some(at(B)));
    script.give(ClientInput::Change { ticket: 1, change, at: member });
    assert!(script.give(ClientInput::Connected(at(B))).contains(&"2 change".to_owned()));
    let all = script.give(ClientInput::Disconnected(at(B)));
    assert!(all.iter().any(|line| line.starts_with("failed 1 the member went away")), "{all:?}");
    assert!(!script.give(ClientInput::Connected(at(B))).contains(&"2 change".to_owned()));
}

#[test]
fn a_member_that_refuses_every_time_is_given_a_rest() {
    let mut script = Script::open();
    let refused = || CellMessage::Refused { reason: "no".to_owned() };
    script.say(A, refused());
    assert_eq!(script.give(ClientInput::Disconnected(at(A))), ["connect 1", "connect 2"]);
    script.give(ClientInput::Connected(at(A)));
    script.say(A, refused());
    assert_eq!(script.give(ClientInput::Disconnected(at(A))), [""; 0]);
    let next = script.client.deadline().unwrap();
    assert!(next > script.now);
}

#[test]
fn a_member_that_knows_no_master_is_not_the_only_one_asked() {
    let mut script = Script::open();
    // The master was cut off from its peers, and says so; it can still be reached.
    assert_eq!(script.master(A, None), [""; 0]);
    let done = script.sleep(3_000_000);
    assert!(done.contains(&"connect 2".to_owned()), "{done:?}");
}

#[test]
fn a_request_that_waits_does_not_keep_few_or_large_replies() {
    let mut script = Script::open();
    script.command(1);
    script.command(2);
    script.reply(2, Reply::Body(Bytes::from_static(b"y")));
    assert_eq!(script.command(3), ["1 request 3 ack 2 [1]"]);
    script.reply(3, Reply::Body(Bytes::from_static(b"y")));
    let command = Bytes::from(vec![0; 2 * 1024 * 1024]);
    let sent = script.give(ClientInput::Command { ticket: 4, command });
    assert_eq!(sent, ["1 request 4 ack 3 [1]"]);
}

#[test]
fn large_replies_are_acknowledged_while_others_are_waited_for() {
    let mut script = Script::open();
    script.command(1);
    script.command(2);
    let large = || Reply::Body(Bytes::from(vec![0; crate::session::REPLY_BYTES_MAX / 3]));
    let requests = |said: Vec<String>| -> Vec<String> {
        said.into_iter().filter(|line| line.starts_with("1 request")).collect()
    };
    assert_eq!(requests(script.reply(1, large())), ["1 request 3 ack 1 []"]);
    assert_eq!(script.reply(3, Reply::Cancelled), [""; 0], "nobody waits for that");
    assert_eq!(requests(script.reply(2, large())), [""; 0], "nothing is waited for any more");
}

#[test]
fn a_request_sent_again_acknowledges_nothing() {
    let mut script = Script::open();
    (1..=4).for_each(|ticket| drop(script.command(ticket)));
    let part = || Reply::Body(Bytes::from(vec![0; crate::session::REPLY_BYTES_MAX / 4 - 1]));
    let requests = |said: Vec<String>| -> Vec<String> {
        said.into_iter().filter(|line| line.starts_with("1 request")).collect()
    };
    assert_eq!(requests(script.reply(1, part())), [""; 0], "little enough to wait for a request");
    assert_ne!(requests(script.sleep(1_500_000)), [""; 0], "those without an answer are sent again");
    let said = requests(script.reply(2, part()));
    assert_eq!(said.last().map(String::as_str), Some("1 request 5 ack 2 []"), "that acknowledged nothing");
}
