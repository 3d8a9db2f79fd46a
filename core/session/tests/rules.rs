//! The rules of the protocol, seen from a connection that speaks it by hand: bad input gets a clear error and
//! changes nothing.

mod world;

use bytes::Bytes;
use kumo_paxos::{Change, Instance};
use kumo_session::{
    Ask, CellMessage, ClientMessage, ConnectionId, EndReason, Label, NodeNote, Reply, SessionId,
};
use world::{SESSIONS_MAX, World, address};

struct Speaker {
    world: World,
    master: usize,
    connection: ConnectionId,
    session: SessionId,
}

fn open(world: &mut World, node: usize, connection: ConnectionId, token: u128) -> SessionId {
    let said = world.raw_say(node, connection, ClientMessage::Open { token, label: Label::default() });
    match said.first() {
        Some(Some(CellMessage::Opened { session, .. })) => *session,
        other => panic!("not opened: {other:?}"),
    }
}

impl Speaker {
    fn new() -> Speaker {
        let mut world = World::new(3);
        let master = world.master();
        let connection = world.raw_connect(master);
        let session = open(&mut world, master, connection, 77);
        Speaker { world, master, connection, session }
    }

    fn say(&mut self, message: ClientMessage) -> Vec<Option<CellMessage>> {
        self.world.raw_say(self.master, self.connection, message)
    }

    fn ask(&mut self, number: u64, acknowledged: u64, command: &str) -> Vec<Option<CellMessage>> {
        let session = self.session;
        let ask = Ask::Command(Bytes::from(command.to_owned()));
        self.say(ClientMessage::Request {
            session,
            number,
            acknowledged,
            unanswered: Vec::new(),
            events_seen: 0,
            ask,
        })
    }

    fn assert_refused(&self, said: &[Option<CellMessage>]) {
        assert!(matches!(said, [Some(CellMessage::Refused { .. }), None]), "{said:?}");
        let notes = &self.world.nodes[self.master].notes;
        assert!(notes.iter().any(|note| matches!(note, NodeNote::ClientRefused { .. })));
    }
}

fn replies(said: &[Option<CellMessage>]) -> Vec<(u64, String)> {
    let reply = |message: &Option<CellMessage>| match message {
        Some(CellMessage::Reply { number, reply: Reply::Body(body), .. }) => {
            (*number, String::from_utf8_lossy(body).into_owned())
        }
        Some(CellMessage::Reply { number, reply, .. }) => (*number, format!("{reply:?}")),
        other => panic!("not a reply: {other:?}"),
    };
    said.iter().map(reply).collect()
}

#[test]
fn a_repeated_request_gets_the_same_reply_and_is_not_executed_again() {
    let mut speaker = Speaker::new();
    let first = speaker.ask(1, 0, "add 5");
    assert_eq!(replies(&first), [(1, "5".to_owned())]);
    assert_eq!(speaker.ask(1, 0, "add 5"), first);
    assert_eq!(replies(&speaker.ask(2, 1, "add 1")), [(2, "6".to_owned())]);
    // Acknowledged: forgotten, and still not executed.
    assert_eq!(speaker.ask(1, 0, "add 5"), []);
    assert_eq!(replies(&speaker.ask(3, 2, "add 0")), [(3, "6".to_owned())]);
}

#[test]
fn requests_that_arrive_out_of_order_wait_for_the_missing_one() {
    let mut speaker = Speaker::new();
    assert_eq!(speaker.ask(3, 0, "add 100"), []);
    assert_eq!(speaker.ask(2, 0, "add 10"), []);
    let said = replies(&speaker.ask(1, 0, "add 1"));
    assert_eq!(said, [(1, "1".to_owned()), (2, "11".to_owned()), (3, "111".to_owned())]);
}

#[test]
fn a_repeated_open_finds_the_same_session() {
    let mut speaker = Speaker::new();
    let other = speaker.world.raw_connect(speaker.master);
    let again = open(&mut speaker.world, speaker.master, other, 77);
    assert_eq!(again, speaker.session);
    let third = open(&mut speaker.world, speaker.master, other, 78);
    assert_ne!(third, speaker.session);
}

#[test]
fn an_open_of_a_session_that_is_over_opens_nothing() {
    let mut speaker = Speaker::new();
    let (session, ask) = (speaker.session, Ask::Close);
    let close = ClientMessage::Request {
        session,
        number: 1,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask,
    };
    let ended = Some(CellMessage::Ended { session, reason: EndReason::Closed });
    let said = speaker.say(close.clone());
    assert!(matches!(said[0], Some(CellMessage::Reply { reply: Reply::Closed, .. })));
    assert_eq!(said[1..], *std::slice::from_ref(&ended));
    let again = speaker.say(ClientMessage::Open { token: 77, label: Label::default() });
    assert_eq!(again, std::slice::from_ref(&ended));
    assert_eq!(speaker.say(close), [ended]);
}

#[test]
fn a_foreign_session_cannot_be_used() {
    let mut speaker = Speaker::new();
    let (master, session) = (speaker.master, speaker.session);
    speaker.connection = speaker.world.raw_connect(master);
    let said = speaker.ask(1, 0, "add 5");
    speaker.assert_refused(&said);
    speaker.connection = speaker.world.raw_connect(master);
    let said = speaker.say(ClientMessage::Attach { session, token: 1 });
    speaker.assert_refused(&said);
    // After a refusal nothing is listened to.
    assert_eq!(speaker.say(ClientMessage::Attach { session, token: 77 }), []);
    assert_eq!(speaker.world.nodes[master].cell.application().sum, 0);
}

#[test]
fn an_attached_connection_gets_the_replies() {
    let mut speaker = Speaker::new();
    speaker.ask(1, 0, "wait");
    let (master, session) = (speaker.master, speaker.session);
    speaker.connection = speaker.world.raw_connect(master);
    let said = speaker.say(ClientMessage::Attach { session, token: 77 });
    assert_eq!(said, [Some(CellMessage::Attached { session })]);
    let said = replies(&speaker.ask(2, 0, "wake"));
    assert_eq!(said, [(2, "ok".to_owned()), (1, "woken".to_owned())]);
}

#[test]
fn an_unknown_session_is_told_so() {
    let mut speaker = Speaker::new();
    let session = SessionId(12345);
    let said = speaker.say(ClientMessage::Attach { session, token: 1 });
    assert_eq!(said, [Some(CellMessage::Ended { session, reason: EndReason::Unknown })]);
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let session = SessionId(1 << 48 | 1);
    let query = Bytes::from(vec![0; 100_000]);
    for linear in [true, false] {
        let mut speaker = Speaker::new();
        assert_eq!(speaker.session, session);
        let (tag, after, query) = (1, Instance(0), query.clone());
        let said = speaker.say(ClientMessage::Read { session, tag, after, linear, query });
        speaker.assert_refused(&said);
    }
    let mut speaker = Speaker::new();
    let said = speaker.ask(0, 0, "add 1");
    speaker.assert_refused(&said);
    let mut speaker = Speaker::new();
    let said = speaker.ask(1, 0, &"x".repeat(kumo_paxos::OUT_OF_BAND_MAX));
    speaker.assert_refused(&said);
}

#[test]
fn a_client_that_acknowledges_nothing_is_refused_before_it_eats_the_memory() {
    let mut speaker = Speaker::new();
    for number in 1..=1024 {
        assert_eq!(replies(&speaker.ask(number, 0, "add 1")), [(number, number.to_string())]);
    }
    for number in 1025..=2048 {
        let said = replies(&speaker.ask(number, 0, "add 1"));
        assert!(said[0].1.starts_with("Refused"), "{said:?}");
    }
    let said = speaker.ask(2049, 0, "add 1");
    speaker.assert_refused(&said);
    assert_eq!(speaker.world.nodes[speaker.master].cell.application().sum, 1024);
}

#[test]
fn replies_the_cell_does_not_know_of_end_the_session() {
    let mut speaker = Speaker::new();
    let session = speaker.session;
    let said = speaker.ask(9, 8, "add 1");
    assert_eq!(said, [Some(CellMessage::Ended { session, reason: EndReason::Expired })]);
}

#[test]
fn who_is_not_master_says_who_is() {
    let mut speaker = Speaker::new();
    let (master, session) = (speaker.master, speaker.session);
    let agent = (master + 1) % 3;
    speaker.world.run(100_000);
    let connection = speaker.world.raw_connect(agent);
    let mut say = |message| speaker.world.raw_say(agent, connection, message);
    assert_eq!(say(ClientMessage::Attach { session, token: 77 }), [Some(CellMessage::Attached { session })]);
    let ask = Ask::Close;
    let request = ClientMessage::Request {
        session,
        number: 1,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask,
    };
    let (tag, after, query) = (1, Instance(0), Bytes::new());
    let linear = ClientMessage::Read { session, tag, after, linear: true, query };
    let open = ClientMessage::Open { token: 5, label: Label::default() };
    for message in [
        request,
        open,
        ClientMessage::Renew { session, sent: 1 },
        linear,
        ClientMessage::Sessions { tag },
        ClientMessage::Who,
    ] {
        let said = say(message);
        let [Some(CellMessage::Master { master: Some(told), members, least_loaded: Some(_) })] = &said[..]
        else {
            panic!("{said:?}");
        };
        assert_eq!((*told, members.len()), (address(master), 3));
    }
}

#[test]
fn a_read_waits_until_the_replica_has_executed_what_it_names() {
    let mut speaker = Speaker::new();
    let (master, session) = (speaker.master, speaker.session);
    let agent = (master + 1) % 3;
    let connection = speaker.world.raw_connect(agent);
    speaker.world.raw_say(agent, connection, ClientMessage::Attach { session, token: 77 });
    let after = speaker.world.nodes[master].cell.executed_upto().plus(1);
    let read = ClientMessage::Read { session, tag: 9, after, linear: false, query: Bytes::new() };
    assert_eq!(speaker.world.raw_say(agent, connection, read), []);
    speaker.ask(1, 0, "add 4");
    speaker.world.run(1_000_000);
    let answers: Vec<_> = speaker.world.raw.iter().filter(|(to, _)| *to == connection).collect();
    let [(_, Some(CellMessage::Answer { tag: 9, body, instance, .. }))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((&body[..], *instance >= after), (&b"4"[..], true));
}

#[test]
fn operators_are_answered_in_sentences() {
    let mut speaker = Speaker::new();
    let said = speaker.say(ClientMessage::Snapshot { tag: 4 });
    let error = Some("this replica keeps its state in memory only".to_owned());
    assert_eq!(said, [Some(CellMessage::Done { tag: 4, error })]);

    let said = speaker.say(ClientMessage::Change { tag: 5, change: Change::Remove(address(9)) });
    let error = Some(format!("{} is not a member", address(9)));
    assert_eq!(said, [Some(CellMessage::Done { tag: 5, error })]);

    let said = speaker.say(ClientMessage::Status { tag: 6 });
    let [Some(CellMessage::Status { tag: 6, status, session_timeout_ms: 10_000 })] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!((status.master, status.replicas.len()), (Some(address(speaker.master)), 3));

    speaker.ask(1, 0, "wait");
    speaker.world.run(2_000_000);
    let said = speaker.say(ClientMessage::Sessions { tag: 7 });
    let [Some(CellMessage::Sessions { tag: 7, sessions })] = &said[..] else { panic!("{said:?}") };
    assert_eq!(sessions.len(), 1);
    assert_eq!((sessions[0].requests, sessions[0].parked, sessions[0].silent_ms), (1, 1, 2000));

    let agent = (speaker.master + 1) % 3;
    let connection = speaker.world.raw_connect(agent);
    let said = speaker.world.raw_say(agent, connection, ClientMessage::Transfer { tag: 8 });
    let error = Some("not the master".to_owned());
    assert_eq!(said, [Some(CellMessage::Done { tag: 8, error })]);

    let before = speaker.master;
    let said = speaker.say(ClientMessage::Transfer { tag: 9 });
    assert_eq!(said[0], Some(CellMessage::Done { tag: 9, error: None }));
    speaker.world.run(2_000_000);
    assert_ne!(speaker.world.master(), before);
}

#[test]
fn no_order_of_messages_breaks_a_node() {
    let mut speaker = Speaker::new();
    let mut seed = 42u64;
    let mut draw = move |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    let mut connections = Vec::new();
    for _ in 0..4000 {
        if connections.len() < 4 || draw(50) == 0 {
            let node = draw(3) as usize;
            connections.push((node, speaker.world.raw_connect(node)));
        }
        let (node, connection) = connections[draw(connections.len() as u64) as usize];
        let session = SessionId(1 << 48 | draw(8));
        let tag = draw(5);
        let ask = match draw(6) {
            0 => Ask::Cancel { target: draw(9) },
            1 => Ask::Close,
            2 => Ask::Kill { session: SessionId(1 << 48 | draw(8)) },
            3 => Ask::Command(Bytes::from_static(b"wait")),
            4 => Ask::Command(Bytes::from_static(b"tell x")),
            _ => Ask::Command(Bytes::from_static(b"add 1")),
        };
        let message = match draw(12) {
            0 => ClientMessage::Open { token: u128::from(draw(8)), label: Label::default() },
            1 | 2 => ClientMessage::Attach { session, token: u128::from(draw(8)) },
            3..=6 => {
                let number = draw(12).saturating_sub(draw(3));
                let unanswered = (0..draw(3)).map(|_| draw(12)).collect();
                let (acknowledged, events_seen) = (draw(4), draw(3));
                ClientMessage::Request { session, number, acknowledged, unanswered, events_seen, ask }
            }
            7 => ClientMessage::Renew { session, sent: draw(100) },
            8 => {
                let (after, linear) = (Instance(draw(2000)), draw(2) == 0);
                ClientMessage::Read { session, tag, after, linear, query: Bytes::new() }
            }
            9 => ClientMessage::Events { session, tag, after: draw(3), executed: Instance(draw(2000)) },
            10 => ClientMessage::Transfer { tag },
            _ => ClientMessage::Who,
        };
        speaker.world.raw_say(node, connection, message);
        if draw(20) == 0 {
            speaker.world.run(draw(200_000));
        }
    }
    speaker.world.run(5_000_000);
    speaker.world.assert_equal();
}

#[test]
fn requests_held_back_keep_nobody_else_out() {
    let mut speaker = Speaker::new();
    let master = speaker.master;
    let session = speaker.session;
    // Number 1 never comes; what would follow it fills all the room there is.
    for number in 2..=9 {
        let ask = Ask::Command(Bytes::from(vec![b'x'; 8 * 1024 * 1024]));
        let (acknowledged, events_seen) = (0, 0);
        let unanswered = Vec::new();
        let request = ClientMessage::Request { session, number, acknowledged, unanswered, events_seen, ask };
        assert_eq!(speaker.say(request), []);
    }
    let tail = 16 * 1024 - 9 * 128;
    let ask = Ask::Command(Bytes::from(vec![b'x'; tail]));
    let request = ClientMessage::Request {
        session,
        number: 10,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask,
    };
    assert_eq!(speaker.say(request), []);
    let connection = speaker.world.raw_connect(master);
    let session = open(&mut speaker.world, master, connection, 78);
    let request = ClientMessage::Request {
        session,
        number: 1,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask: Ask::Command(Bytes::from_static(b"add 1")),
    };
    let said = speaker.world.raw_say(master, connection, request);
    assert_eq!(replies(&said), [(1, "1".to_owned())]);
}

#[test]
fn who_acknowledges_at_last_is_served_again() {
    let mut speaker = Speaker::new();
    for number in 1..=2048 {
        speaker.ask(number, 0, "add 1");
    }
    assert_eq!(replies(&speaker.ask(2049, 2048, "add 1")), [(2049, "1025".to_owned())]);
}

#[test]
fn a_list_of_unanswered_requests_is_bounded() {
    let mut speaker = Speaker::new();
    let request = ClientMessage::Request {
        session: speaker.session,
        number: 1,
        acknowledged: 0,
        unanswered: vec![7; 5000],
        events_seen: 0,
        ask: Ask::Command(Bytes::from_static(b"add 1")),
    };
    let said = speaker.say(request);
    speaker.assert_refused(&said);
}

#[test]
fn a_cell_with_as_many_sessions_as_it_may_opens_no_more() {
    let mut speaker = Speaker::new();
    for count in 1..SESSIONS_MAX {
        open(&mut speaker.world, speaker.master, speaker.connection, 1000 + count as u128);
    }
    speaker.world.run(1_000_000);
    let said = |speaker: &mut Speaker, token| {
        let late = speaker.world.raw_connect(speaker.master);
        let message = ClientMessage::Open { token, label: Label::default() };
        speaker.world.raw_say(speaker.master, late, message)
    };
    let reason = "the cell has as many sessions as it may".to_owned();
    assert_eq!(said(&mut speaker, 5000), [Some(CellMessage::Refused { reason }), None]);
    speaker.world.run(1_000_000);
    for node in &speaker.world.nodes {
        assert_eq!(node.cell.sessions().count(), SESSIONS_MAX, "nothing has changed");
    }
    // Who has one finds it still, and works with it.
    let found = said(&mut speaker, 77);
    assert!(matches!(found[..], [Some(CellMessage::Opened { session, .. })] if session == speaker.session));
    // One that ends makes room for one.
    let (session, ask) = (speaker.session, Ask::Close);
    speaker.say(ClientMessage::Request {
        session,
        number: 1,
        acknowledged: 0,
        unanswered: Vec::new(),
        events_seen: 0,
        ask,
    });
    assert!(matches!(said(&mut speaker, 5000)[..], [Some(CellMessage::Opened { .. })]));
    assert!(matches!(said(&mut speaker, 5001)[..], [Some(CellMessage::Refused { .. }), None]));
}
