//! [`Brought`]: a program's own transport, the seed's callbacks of PaxosSessionInit. They may block, so each connection
//! has two threads: one sends, one makes the connection and then receives.

use super::failure::Failure;
use super::handle::CSession;
use super::pipe::Pipe;
use super::roster::Roster;
use super::thread::{Crew, spawn};
use crate::transport::{Connecting, Line, Transport};
use libc::{c_char, c_int, c_void, size_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

pub(super) type Connect = unsafe extern "C" fn(*mut CSession, c_int) -> *mut c_void;
pub(super) type Shutdown = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
pub(super) type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(super) type GetMyAddr = unsafe extern "C" fn(*mut c_void, *mut sockaddr) -> c_int;
pub(super) type SendTo = unsafe extern "C" fn(*mut c_void, *mut c_char, size_t, c_int) -> c_int;
pub(super) type RecvFrom = unsafe extern "C" fn(*mut c_void, *mut c_char, size_t, c_int) -> c_int;

/// The callbacks of a transport.
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    connect: Connect,
    shutdown: Shutdown,
    close: Close,
    address: Option<GetMyAddr>,
    send: SendTo,
    receive: RecvFrom,
}

impl Callbacks {
    /// `None`: all are NULL, the built-in transport is meant.
    pub(super) fn new(
        connect: Option<Connect>,
        shutdown: Option<Shutdown>,
        close: Option<Close>,
        address: Option<GetMyAddr>,
        send: Option<SendTo>,
        receive: Option<RecvFrom>,
    ) -> Result<Option<Callbacks>, Failure> {
        match (connect, shutdown, close, send, receive) {
            (Some(connect), Some(shutdown), Some(close), Some(send), Some(receive)) => {
                Ok(Some(Callbacks { connect, shutdown, close, address, send, receive }))
            }
            (None, None, None, None, None) if address.is_none() => Ok(None),
            _ => Err(Failure::invalid("connect, shutdown, close, sendto and recvfrom come together")),
        }
    }
}

/// Connections through the program's callbacks.
pub(super) struct Brought {
    callbacks: Callbacks,
    session: Program,
    roster: Arc<Roster>,
    crew: Arc<Crew>,
}

/// The session as the program knows it, for its connect.
#[derive(Clone, Copy)]
struct Program(*mut CSession);

// SAFETY: it is handed to the program's connect and not looked at here. It outlives the threads: closing the session
// waits for their end.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Brought {
    pub(super) fn new(
        callbacks: Callbacks,
        session: *mut CSession,
        roster: Arc<Roster>,
        crew: Arc<Crew>,
    ) -> Brought {
        Brought { callbacks, session: Program(session), roster, crew }
    }
}

impl Transport for Brought {
    fn connect(&self, address: SocketAddr) -> Connecting {
        let (made, connected) = oneshot::channel();
        let (callbacks, session, crew) = (self.callbacks, self.session, self.crew.clone());
        let started = self.roster.place(address).and_then(|place| {
            let place = c_int::try_from(place).map_err(io::Error::other)?;
            start(&self.crew, "pfs-receive", move || dial(callbacks, session, place, crew, made))
        });
        Box::pin(async move {
            started?;
            connected
                .await
                .unwrap_or_else(|_| Err(io::Error::other("the program's connect gave no connection")))
        })
    }

    fn met(&self, address: SocketAddr, itself: SocketAddr) {
        self.roster.met(address, itself);
    }
}

/// Starts a thread that is one of the crew until its end.
fn start(crew: &Arc<Crew>, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    crew.join();
    let member = Member(crew.clone());
    spawn(name, move || {
        work();
        drop(member);
    })
    .map(drop)
}

/// Leaves the crew when dropped: also when the thread could not be started.
struct Member(Arc<Crew>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The receiving thread: connects, and hands on what arrives until the end.
fn dial(
    callbacks: Callbacks,
    session: Program,
    place: c_int,
    crew: Arc<Crew>,
    made: oneshot::Sender<io::Result<Line>>,
) {
    // SAFETY: the program gave us the function to be called so.
    let handle = unsafe { (callbacks.connect)(session.0, place) };
    if handle.is_null() {
        return;
    }
    let wire = Arc::new(Wire { callbacks, handle, output: Pipe::default(), input: Pipe::default() });
    let sending = wire.clone();
    let line = start(&crew, "pfs-send", move || sending.send())
        .map(|()| Line { local: wire.local(), stream: Box::new(End(wire.clone())) });
    let whole = line.is_ok();
    // Who asked may be gone: then its end of the wire is dropped here, and that is the end of it.
    drop(made.send(line));
    if whole {
        wire.receive();
    }
}

/// A connection of the program. Closed when all three are done with it: both threads and the session.
struct Wire {
    callbacks: Callbacks,
    handle: *mut c_void,
    output: Pipe,
    input: Pipe,
}

// SAFETY: the handle is the program's and only given back to it. `pfs.h` says that one thread sends while
// another receives and that shutdown may come from a third.
unsafe impl Send for Wire {}
// SAFETY: as above.
unsafe impl Sync for Wire {}

impl Wire {
    fn receive(&self) {
        let mut buffer = vec![0u8; RECEIVE_BYTES];
        loop {
            // SAFETY: the buffer has this many bytes, and the handle is open while `self` lives.
            let count =
                unsafe { (self.callbacks.receive)(self.handle, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            match usize::try_from(count) {
                // More than there was room for: the callback is not what it says.
                Ok(count) if count > buffer.len() => return self.input.end(true),
                Ok(0) => return self.input.end(false),
                Ok(count) if self.input.put(&buffer[..count]) => {}
                Ok(_) => return,
                Err(_) => return self.input.end(true),
            }
        }
    }

    fn send(&self) {
        while let Some(mut bytes) = self.output.take() {
            let mut rest = &mut bytes[..];
            while !rest.is_empty() {
                // SAFETY: so many bytes are there, and the handle is open while `self` lives.
                let sent =
                    unsafe { (self.callbacks.send)(self.handle, rest.as_mut_ptr().cast(), rest.len(), 0) };
                match usize::try_from(sent) {
                    Ok(count) if count > 0 && count <= rest.len() => rest = &mut rest[count..],
                    _ => return self.output.end(true),
                }
            }
        }
    }

    /// This side's address, if the program tells it.
    fn local(&self) -> SocketAddr {
        let unknown = (Ipv4Addr::UNSPECIFIED, 0).into();
        let Some(ask) = self.callbacks.address else { return unknown };
        let mut room = MaybeUninit::<sockaddr_storage>::zeroed();
        // SAFETY: there is room for an address of any family, and the handle is open while `self` lives.
        let told = unsafe { ask(self.handle, room.as_mut_ptr().cast()) };
        if told < 0 {
            return unknown;
        }
        // SAFETY: zeroes are a valid address of no family, and what the program wrote are plain numbers.
        let storage = unsafe { room.assume_init() };
        address(&storage).unwrap_or(unknown)
    }
}

fn address(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let storage: *const sockaddr_storage = storage;
    // SAFETY: every address begins with its family, and there is room for any.
    match c_int::from(unsafe { (*storage).ss_family }) {
        libc::AF_INET => {
            // SAFETY: it says that it is one of these.
            let found = unsafe { &*storage.cast::<sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
            Some((ip, u16::from_be(found.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let found = unsafe { &*storage.cast::<sockaddr_in6>() };
            Some((Ipv6Addr::from(found.sin6_addr.s6_addr), u16::from_be(found.sin6_port)).into())
        }
        _ => None,
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle any more.
        unsafe { (self.callbacks.close)(self.handle) };
    }
}

/// The session's end of a wire.
struct End(Arc<Wire>);

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context, buffer: &mut ReadBuf) -> Poll<io::Result<()>> {
        let taken = self.0.input.poll_take(cx, buffer.initialize_unfilled());
        taken.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.output.poll_put(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context) -> Poll<io::Result<()>> {
        self.0.output.end(false);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let wire = &self.0;
        wire.output.end(false);
        wire.input.end(false);
        // Both threads may be in a call that blocks: this is what ends it.
        // SAFETY: the handle is open while the wire lives.
        unsafe { (wire.callbacks.shutdown)(wire.handle, libc::SHUT_RDWR) };
    }
}

/// Asked for at once: a large answer then takes few calls.
const RECEIVE_BYTES: usize = 64 * 1024;
