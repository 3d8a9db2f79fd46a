//! [`Slot`]: a `struct Session` in the caller's memory, and how a pointer to one is checked.

use super::engine::Engine;
use super::failure::Failure;
use super::memory::Memory;
use super::roster::Roster;
use super::transport::Callbacks;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `struct Session`, as far as C knows it.
#[repr(C)]
pub struct CSession {
    _opaque: [u8; 0],
}

/// What lies in the memory of a `struct Session`. It owns memory elsewhere only while it is open, or after
/// PaxosSessionSetCell: a program that closes its session may forget the rest, as the slides do.
#[repr(C)]
pub(super) struct Slot {
    /// [`MAGIC`] and this very address: neither foreign memory nor a copy of a session is one.
    magic: AtomicU64,
    /// The process that opened it; 0: nobody.
    process: AtomicU32,
    pub(super) memory: Memory,
    pub(super) callbacks: Option<Callbacks>,
    members: Mutex<Vec<SocketAddr>>,
    state: Mutex<State>,
}

pub(super) enum State {
    Closed,
    Opening(Arc<Roster>),
    Open(Arc<Engine>),
}

impl Slot {
    /// Bytes for a session wherever they begin.
    pub(super) const BYTES: usize = size_of::<Slot>() + align_of::<Slot>() - 1;

    /// Makes a session of the caller's memory, whatever is in it.
    ///
    /// # Safety
    /// `session` points to [`BYTES`](Slot::BYTES) writable bytes.
    pub(super) unsafe fn init(
        session: *mut CSession,
        memory: Memory,
        callbacks: Option<Callbacks>,
    ) -> Result<(), Failure> {
        let slot = aligned(session)?;
        let fresh = Slot {
            magic: AtomicU64::new(mark(slot)),
            process: AtomicU32::new(0),
            memory,
            callbacks,
            members: Mutex::default(),
            state: Mutex::new(State::Closed),
        };
        // SAFETY: the caller's promise; aligned, it still fits.
        unsafe { slot.write(fresh) };
        Ok(())
    }

    /// The session that a pointer means.
    ///
    /// # Safety
    /// `session` is NULL or points to [`BYTES`](Slot::BYTES) readable bytes; a session is not destroyed meanwhile.
    pub(super) unsafe fn of<'a>(session: *mut CSession) -> Result<&'a Slot, Failure> {
        let slot = aligned(session)?;
        // SAFETY: readable by the caller's promise, and any bytes are a number.
        if unsafe { &(*slot).magic }.load(Ordering::Acquire) != mark(slot) {
            return Err(Failure::new(libc::EBADF, "not an initialised session"));
        }
        // SAFETY: `init` has written one here.
        Ok(unsafe { &*slot })
    }

    /// The memory is the caller's alone again.
    ///
    /// # Safety
    /// As for [`of`](Slot::of), and nobody else uses the session.
    pub(super) unsafe fn destroy(session: *mut CSession) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let slot = unsafe { Slot::of(session) }?;
        if slot.is_inherited() {
            // Its threads are the parent's: nothing of it may be touched here.
            let state = slot.replace(State::Closed);
            std::mem::forget(state);
        }
        slot.magic.store(0, Ordering::Release);
        // SAFETY: it was a session until a moment ago, and is none for anybody now.
        unsafe { std::ptr::drop_in_place(std::ptr::from_ref(slot).cast_mut()) };
        Ok(())
    }

    /// Whether another process opened it, and this one got it by fork.
    pub(super) fn is_inherited(&self) -> bool {
        ![0, std::process::id()].contains(&self.process.load(Ordering::Acquire))
    }

    /// What carries the session.
    pub(super) fn engine(&self) -> Result<Arc<Engine>, Failure> {
        self.check_process()?;
        match &*self.state() {
            State::Open(engine) => Ok(engine.clone()),
            State::Closed | State::Opening(_) => Err(not_open()),
        }
    }

    /// The cell's members as this session numbers them.
    pub(super) fn roster(&self) -> Result<Arc<Roster>, Failure> {
        self.check_process()?;
        match &*self.state() {
            State::Opening(roster) => Ok(roster.clone()),
            State::Open(engine) => Ok(engine.roster().clone()),
            State::Closed => Err(not_open()),
        }
    }

    /// From closed to opening.
    pub(super) fn begin(&self, roster: Arc<Roster>) -> Result<(), Failure> {
        self.check_closed()?;
        self.process.store(std::process::id(), Ordering::Release);
        *self.state() = State::Opening(roster);
        Ok(())
    }

    pub(super) fn replace(&self, state: State) -> State {
        match state {
            State::Closed => self.process.store(0, Ordering::Release),
            State::Opening(_) | State::Open(_) => {}
        }
        std::mem::replace(&mut *self.state(), state)
    }

    pub(super) fn check_closed(&self) -> Result<(), Failure> {
        self.check_process()?;
        match &*self.state() {
            State::Closed => Ok(()),
            State::Opening(_) | State::Open(_) => Err(Failure::new(libc::EISCONN, "the session is open")),
        }
    }

    pub(super) fn check_process(&self) -> Result<(), Failure> {
        match self.is_inherited() {
            true => Err(Failure::new(libc::EPERM, "the session belongs to the process that opened it")),
            false => Ok(()),
        }
    }

    /// As given by PaxosSessionSetCell; none otherwise.
    pub(super) fn members(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_open() -> Failure {
    Failure::new(libc::ENOTCONN, "the session is not open")
}

fn aligned(session: *mut CSession) -> Result<*mut Slot, Failure> {
    if session.is_null() {
        return Err(Failure::invalid("session is NULL"));
    }
    let bytes = session.cast::<u8>();
    let skip = bytes.align_offset(align_of::<Slot>());
    // SAFETY: the memory of a session has room for this: see `BYTES`.
    Ok(unsafe { bytes.add(skip) }.cast())
}

fn mark(slot: *mut Slot) -> u64 {
    MAGIC ^ (slot as usize as u64)
}

/// "kumopfss" as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"kumopfss");
