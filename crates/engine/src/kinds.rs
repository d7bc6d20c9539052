//! Which kinds are watched: those that machines name, and for some machines every kind there is, as kinds come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use pawl_api::meta::Kind;
use pawl_machines::view::View;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::caches::{Change, Scope, Standing};
use crate::discovery::{self, CRD, Every};
use crate::engine::{Core, Settings};
use crate::informer::{Informer, Listener};
use crate::queue::backoff;
use crate::routing::Need;

/// How often discovery is asked again though no definition has changed: aggregated servers come without one.
const REDISCOVER: Duration = Duration::from_mins(10);

impl Core {
    /// An informer as a task that outlives even a panic of its own.
    pub(crate) fn feed(
        self: &Arc<Self>,
        need: &Need,
        scope: Scope,
        seed: u64,
    ) -> impl Future<Output = ()> + use<> {
        let Need { kind, depth, labels, lines } = need;
        let tickets = self.caches.add(kind, scope.clone(), labels, lines);
        self.metrics.standing(kind, Standing::Pending);
        let mut informer = Informer {
            kind: Arc::new(kind.clone()),
            depth: *depth,
            wire: self.wire.clone(),
            caches: Arc::clone(&self.caches),
            listener: Arc::clone(self) as Arc<dyn Listener>,
            metrics: Arc::clone(&self.metrics),
            tickets,
            random: fastrand::Rng::with_seed(seed ^ spread(&format!("{kind} {scope:?}"))),
            scope,
            failures: 0,
        };
        async move {
            while AssertUnwindSafe(informer.run()).catch_unwind().await.is_err() {
                tracing::error!(kind = %informer.kind, "an informer panicked: it starts over");
                informer.failures = informer.failures.saturating_add(1);
                sleep(backoff(informer.failures, &mut informer.random)).await;
            }
        }
    }

    /// Keeps one metadata watch on every kind there is, as kinds come and go.
    pub(crate) async fn follow_every_kind(self: Arc<Self>, settings: Arc<Settings>) {
        let named: Vec<Kind> = self.router.needs().into_iter().map(|need| need.kind).chain([CRD]).collect();
        let mut random = fastrand::Rng::with_seed(settings.seed ^ spread("every kind"));
        let (mut feeds, mut fed) = (JoinSet::new(), BTreeMap::<Kind, Vec<AbortHandle>>::new());
        let mut failures = 0_u32;
        loop {
            let definitions = self.definitions();
            let found = discovery::every(&self.wire).await;
            let mut patience = REDISCOVER;
            match found {
                Ok(Every { kinds, silent }) => {
                    let gone: Vec<Kind> = fed.keys().filter(|kind| !kinds.contains(kind)).cloned().collect();
                    for kind in gone.into_iter().filter(|kind| !silent.contains(kind.group.as_ref())) {
                        fed.remove(&kind).into_iter().flatten().for_each(|feed| feed.abort());
                        self.drop_kind(&kind);
                    }
                    for kind in kinds.iter().filter(|kind| !named.iter().any(|named| named.same_kind(kind))) {
                        if !fed.contains_key(kind) {
                            let need = Need::metadata(kind.clone());
                            let scopes = settings.scopes(kind).into_iter();
                            let started = scopes
                                .map(|scope| feeds.spawn(self.feed(&need, scope, settings.seed)))
                                .collect();
                            fed.insert(kind.clone(), started);
                        }
                    }
                    self.discovered.store(true, Ordering::SeqCst);
                    self.open_lanes();
                    failures = if silent.is_empty() && self.all_defined(&kinds) { 0 } else { failures + 1 };
                }
                Err(failure) => {
                    failures += 1;
                    tracing::warn!(%failure, failures, "cannot discover kinds");
                }
            }
            if failures > 0 {
                patience = backoff(failures, &mut random);
            }
            let redefined = async {
                self.caches.until(&CRD, || self.definitions() != definitions).await;
            };
            tokio::select! {
                biased;
                () = redefined => {}
                () = sleep(patience) => {}
            }
        }
    }

    /// The definitions that are known, each at its version.
    fn definitions(&self) -> Vec<(String, String)> {
        let known = self.caches.list(&CRD, None);
        known.iter().map(|known| (known.name().to_owned(), known.resource_version().to_owned())).collect()
    }

    /// Whether every definition that is known is served too: a new one takes a moment.
    fn all_defined(&self, kinds: &BTreeSet<Kind>) -> bool {
        let served: BTreeSet<String> =
            kinds.iter().map(|kind| format!("{}.{}", kind.plural, kind.group)).collect();
        self.caches.list(&CRD, None).iter().all(|definition| served.contains(definition.name()))
    }

    /// A kind whose definition is gone is looked for at once, for its watch may stay open and silent.
    pub(crate) fn follow_definition(&self, change: &Change) {
        let (Some(before), None) = (&change.before, &change.after) else { return };
        if *before.kind() == CRD {
            for (kind, _) in self.caches.standings() {
                if before.name() == format!("{}.{}", kind.plural, kind.group) {
                    self.caches.ask_to_list(&kind);
                }
            }
        }
    }

    fn drop_kind(&self, kind: &Kind) {
        tracing::info!(%kind, "a kind is gone");
        for change in self.caches.discard(kind) {
            self.changed(&change);
        }
        self.metrics.unwatched(kind);
        self.open_lanes();
    }
}

/// Turns a name into a number that differs from those of other names (FNV-1a), so that each draws its own chance from
/// one seed.
fn spread(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
