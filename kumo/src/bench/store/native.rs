//! [`Native`]: callers of the native client, which asks the servers of a key without a gateway between.

use super::driver::Outcome;
use super::keys::Keys;
use super::{Op, StoreBench};
use crate::bench::tally::Tally;
use crate::failure::Failure;
use pfs::{Item, Store, StoreError, StoreOptions};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;

/// One client, and as many callers as `--conns` times `--pipeline`.
pub struct Native {
    store: Store,
    callers: u32,
    state: Rc<RefCell<State>>,
}

struct State {
    keys: Keys,
    tally: Tally,
    misses: u64,
    success: Instant,
    gap: Duration,
    trouble: Option<String>,
    random: u64,
}

impl Native {
    /// One question is asked before anything is measured: a store that does not answer within `patience` is not there.
    pub async fn open(
        managers: &[SocketAddr],
        plan: &StoreBench,
        patience: Duration,
    ) -> Result<Native, Failure> {
        let store = Store::open(&StoreOptions::new(managers));
        let store = store.map_err(|error| Failure::refused(error.to_string()))?;
        match tokio::time::timeout(patience, store.get(Keys::name(0).to_vec())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Failure::unreachable(error.to_string())),
            Err(_) => return Err(Failure::unreachable("no manager, or no server, answers")),
        }
        let state = State {
            keys: Keys::new(plan.keys(), plan.size as usize),
            tally: Tally::new(),
            misses: 0,
            success: Instant::now(),
            gap: Duration::ZERO,
            trouble: None,
            random: super::driver::RANDOM,
        };
        let callers = plan.conns.saturating_mul(plan.pipeline).min(plan.keys());
        Ok(Native { store, callers, state: Rc::new(RefCell::new(state)) })
    }

    /// Stores every key once.
    pub async fn fill(&mut self) -> Result<(), Failure> {
        let callers = FILLERS.min(self.state.borrow().keys.count());
        self.with_callers(callers, |store, state, number| async move {
            let count = state.borrow().keys.count();
            for key in (number..count).step_by(callers as usize) {
                set(&store, &state, key).await;
                if state.borrow().trouble.is_some() {
                    return;
                }
            }
        })
        .await;
        match self.state.borrow_mut().trouble.take() {
            None => Ok(()),
            Some(trouble) => Err(Failure::refused(format!("cannot store the keys: {trouble}"))),
        }
    }

    pub async fn run(mut self, plan: &StoreBench) -> Result<Outcome, Failure> {
        let began = Instant::now();
        let (until, op, callers) = (began + plan.secs, plan.op, self.callers);
        {
            let mut state = self.state.borrow_mut();
            state.tally = Tally::new();
            (state.success, state.gap) = (began, Duration::ZERO);
        }
        self.with_callers(callers, |store, state, number| async move {
            while Instant::now() < until {
                let (draw, count) = {
                    let mut state = state.borrow_mut();
                    (super::driver::next_random(&mut state.random), state.keys.count())
                };
                let sets = op == Op::Set || (op == Op::Mixed && draw.is_multiple_of(10));
                let draw = (draw >> 8) as u32;
                if sets {
                    let own = (count - number).div_ceil(callers);
                    set(&store, &state, number + draw % own * callers).await;
                } else {
                    get(&store, &state, draw % count, op.keys().min(count)).await;
                }
            }
        })
        .await;
        let spent = began.elapsed();
        let mut state = self.state.borrow_mut();
        if state.tally.latency_us.is_empty()
            && let Some(trouble) = state.trouble.take()
        {
            return Err(Failure::unreachable(trouble));
        }
        let tally = std::mem::replace(&mut state.tally, Tally::new());
        Ok(Outcome { tally, misses: state.misses, spent, gap: state.gap })
    }

    async fn with_callers<F: Future<Output = ()> + 'static>(
        &mut self,
        count: u32,
        caller: impl Fn(Store, Rc<RefCell<State>>, u32) -> F,
    ) {
        let local = LocalSet::new();
        for number in 0..count {
            local.spawn_local(caller(self.store.clone(), self.state.clone(), number));
        }
        local.await;
    }
}

async fn set(store: &Store, state: &RefCell<State>, key: u32) {
    let (value, number) = state.borrow_mut().keys.next(key);
    let since = Instant::now();
    let result = store.set(Keys::name(key).to_vec(), value, 0, 0).await;
    let mut state = state.borrow_mut();
    match result {
        Ok(_) => {
            state.keys.stored(key, number);
            state.succeeded(since);
        }
        Err(error) => {
            state.keys.lost(key);
            state.failed(&error);
        }
    }
}

async fn get(store: &Store, state: &RefCell<State>, first: u32, count: u32) {
    let (names, floors): (Vec<Vec<u8>>, Vec<(u32, u32)>) = {
        let keys = &state.borrow().keys;
        let wanted = (0..count).map(|offset| (first + offset) % keys.count());
        wanted.map(|key| (Keys::name(key).to_vec(), (key, keys.floor(key)))).unzip()
    };
    let since = Instant::now();
    let result = store.get_many(names).await;
    let mut state = state.borrow_mut();
    match result {
        Ok(found) => {
            for (&(key, floor), item) in floors.iter().zip(found) {
                state.judge(key, floor, item);
            }
            state.succeeded(since);
        }
        Err(error) => state.failed(&error),
    }
}

impl State {
    fn judge(&mut self, key: u32, floor: u32, item: Option<Item>) {
        match item {
            Some(item) => {
                let right = self.keys.is_right(key, floor, &item.data);
                self.tally.check(right);
            }
            None => self.misses += 1,
        }
    }

    fn succeeded(&mut self, since: Instant) {
        let now = Instant::now();
        self.tally.success(now.saturating_duration_since(since));
        self.gap = self.gap.max(now.saturating_duration_since(self.success));
        self.success = now;
    }

    fn failed(&mut self, error: &StoreError) {
        self.tally.errors += 1;
        self.trouble.get_or_insert_with(|| error.to_string());
    }
}

/// Callers that store the keys before the clock runs.
const FILLERS: u32 = 256;
