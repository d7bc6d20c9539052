//! A GitHub that keeps state: for tests, simulations and the demo.
//!
//! ```text
//!  people (hands) ──push, open a pull request, comment──▶ world ◀──HTTP (answers)── whoever speaks GitHub's API
//!                                                           │ │
//!                              deliveries: signed webhooks ◀┘ └▶ journal: what was really applied
//! ```
//! Inside it is a function: a request and the time in, an answer out, no runtime and no chance. Ids are counted, hashes
//! are git's. Faults happen on order ([`Fault`]). What it answers is held against GitHub's own description by
//! [`contract`] in every test, so that it cannot agree with our mistakes.

mod access;
mod answers;
mod asked;
pub mod contract;
mod deeds;
mod deliveries;
mod fault;
mod git;
mod hands;
mod journal;
mod overview;
mod serve;
mod shapes;
mod world;
mod writes;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use pawl_engine::Clock;

pub use self::deeds::{Deed, Undone};
pub use self::deliveries::Delivery;
pub use self::fault::{Fault, Trouble};
pub use self::hands::{Change, Repo};
pub use self::journal::{Applied, Effect};
pub use self::serve::serve;
use self::world::World;
pub use self::world::{CheckRun, Role};
use super::client::lock;
use crate::transport::{Broken, Transport};

/// The App that is installed in every repository that [`Fake::create`] makes.
pub const APP_ID: u64 = 7;
pub const INSTALLATION_ID: u64 = 70;
/// The App's private key: made for this file, and good for nothing else.
pub const APP_KEY_PKCS1: &str = include_str!("../../../data/fake-app-key.pkcs1.pem");
/// The same key in the other form.
pub const APP_KEY_PKCS8: &str = include_str!("../../../data/fake-app-key.pkcs8.pem");
/// A machine user's token, for those who have no App.
pub const TOKEN: &str = "fake-token-of-a-machine-user";
/// Whose token it is.
pub const TOKEN_USER: &str = "pawl-bot";
/// What deliveries are signed with.
pub const WEBHOOK_SECRET: &str = "fake-webhook-secret";

/// A GitHub. Clones are handles of the same one.
#[derive(Clone)]
pub struct Fake {
    world: Arc<Mutex<World>>,
}

impl Fake {
    /// One with nothing in it.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(clock))) }
    }

    /// Makes a repository with an empty default branch `main`, with the App installed.
    pub fn create(&self, full_name: &str) -> Repo {
        let id = lock(&self.world).create(full_name, None);
        Repo::new(self, id)
    }

    /// A handle to a repository there is.
    pub fn repository(&self, full_name: &str) -> Option<Repo> {
        let id = lock(&self.world).find(full_name)?.id;
        Some(Repo::new(self, id))
    }

    /// Answers one request.
    ///
    /// # Errors
    /// When a fault was ordered that leaves it without an answer.
    pub fn call(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Broken> {
        lock(&self.world).call(request)
    }

    /// The way here without a socket: every answer is there at once.
    pub fn transport(&self) -> Transport {
        Transport::new(self.clone())
    }

    /// Something will go wrong.
    pub fn order(&self, fault: Fault) {
        lock(&self.world).orders.add(fault);
    }

    /// Nothing more goes wrong.
    pub fn clear_faults(&self) {
        lock(&self.world).orders.clear();
    }

    /// How many requests an hour each credential has from now on.
    pub fn set_rate_limit(&self, per_hour: u32) {
        lock(&self.world).access.limit = per_hour;
    }

    /// How many entries a tree may have before it is cut short.
    pub fn set_max_tree_entries(&self, entries: usize) {
        lock(&self.world).max_tree_entries = entries;
    }

    /// No token that was minted is good any longer.
    pub fn revoke_tokens(&self) {
        lock(&self.world).access.revoke();
    }

    /// The App's installation is suspended, or not any longer.
    pub fn set_suspended(&self, suspended: bool) {
        lock(&self.world).access.suspended = suspended;
    }

    /// Requests that came, answered or not.
    pub fn requests(&self) -> u64 {
        lock(&self.world).requests
    }

    /// What requests really did, in order.
    pub fn journal(&self) -> Vec<Applied> {
        lock(&self.world).journal.all()
    }

    /// The webhooks GitHub would have sent since this was last asked.
    pub fn take_deliveries(&self) -> Vec<Delivery> {
        lock(&self.world).take_deliveries()
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fake").field("requests", &self.requests()).finish_non_exhaustive()
    }
}

impl tower::Service<Request<Bytes>> for Fake {
    type Response = Response<Bytes>;
    type Error = Broken;
    type Future = std::future::Ready<Result<Response<Bytes>, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Fake::call(self, &request))
    }
}
