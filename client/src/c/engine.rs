//! [`Engine`]: what carries an open session: a thread with a runtime, and what the session holds for its program.

use super::failure::Failure;
use super::handle::CSession;
use super::roster::Roster;
use super::thread::{Crew, spawn};
use super::transport::{Brought, Callbacks};
use crate::error::Error;
use crate::lock::LockGuard;
use crate::options::Options;
use crate::queue::Message;
use crate::session::Session;
use crate::transport::{Tcp, Transport};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// An open session. Dropped, it is gone: its threads have ended when the drop returns.
pub(super) struct Engine {
    locks: Mutex<BTreeMap<String, LockGuard>>,
    /// Messages received and not handed out, because the program had no room for them: one for a queue.
    kept: Mutex<BTreeMap<String, Message>>,
    session: Session,
    roster: Arc<Roster>,
    process: u32,
    // Last: what is above speaks to it while it is dropped.
    worker: Worker,
}

impl Engine {
    pub(super) fn open(
        options: &Options,
        callbacks: Option<Callbacks>,
        session: *mut CSession,
        roster: Arc<Roster>,
    ) -> Result<Engine, Failure> {
        let worker = Worker::start()?;
        let transport: Arc<dyn Transport> = match callbacks {
            None => Arc::new(Tcp),
            Some(callbacks) => {
                Arc::new(Brought::new(callbacks, session, roster.clone(), worker.crew.clone()))
            }
        };
        let session = worker.handle.block_on(Session::open_over(options, transport))?;
        Ok(Engine {
            locks: Mutex::default(),
            kept: Mutex::default(),
            session,
            roster,
            process: std::process::id(),
            worker,
        })
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Blocks until the answer is there.
    pub(super) fn run<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        if self.process != std::process::id() {
            return Err(Failure::new(libc::EPERM, "the session belongs to the process that opened it"));
        }
        Ok(self.worker.handle.block_on(call)?)
    }

    /// Ends the session, and with it every call that is under way in another thread.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let closing = async { tokio::time::timeout(CLOSE_PATIENCE, self.session.close()).await };
        match self.worker.handle.block_on(closing) {
            Ok(result) => Ok(result?),
            Err(_) => Err(Failure::new(libc::ETIMEDOUT, "the cell was not told: the session will expire")),
        }
    }

    pub(super) fn locks(&self) -> MutexGuard<'_, BTreeMap<String, LockGuard>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Message>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that the session runs on, and those of its transport.
struct Worker {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    crew: Arc<Crew>,
}

impl Worker {
    fn start() -> Result<Worker, Failure> {
        let fault = |error: std::io::Error| {
            Failure::new(error.raw_os_error().unwrap_or(libc::EAGAIN), format!("start a thread: {error}"))
        };
        let (stop, stopped) = oneshot::channel();
        let (built, handle) = oneshot::channel();
        // Built over there: what a runtime leaves behind in its thread is then freed with it.
        let thread = spawn("pfs-session", move || match Builder::new_current_thread().enable_all().build() {
            Err(error) => drop(built.send(Err(error))),
            Ok(runtime) => {
                drop(built.send(Ok(runtime.handle().clone())));
                // Told to stop, or left alone: the end in both cases.
                let _ = runtime.block_on(stopped);
            }
        })
        .map_err(fault)?;
        let handle = handle.blocking_recv().unwrap_or_else(|_| Err(std::io::Error::other("it ended")));
        let handle = handle.map_err(fault)?;
        Ok(Worker { handle, stop: Some(stop), thread: Some(thread), crew: Arc::default() })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.crew.wait_for_all();
    }
}

/// A program that ends must not wait longer than this for a cell without a majority.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
