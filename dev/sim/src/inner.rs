//! The inner simulator: store, machines and faults in one thread with no runtime at all.
//!
//! At each moment several things could happen: a watch delivers its next event, an object is looked at, a half-applied
//! plan sends its next request, the node moves a pod, a person does the next deed. A seeded generator picks one. So
//! every interleaving has a seed, and a seed is a bug report.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use pawl_api::meta::Kind;
use pawl_engine::Ports;
use pawl_engine::queue::Work;
use pawl_engine::routing::Router;
use pawl_machines::apply::Answer;
use pawl_machines::failure::Failure;

use crate::acting;
use crate::fault::{self, Fault, Injection};
use crate::ground::{DAWN, Ground, Happened};
use crate::hub::{Fate, Mail, Sky, Weather};
use crate::kubelet;
use crate::mutant::Guards;
use crate::oracle::{self, Oracle, Summary, Violation};
use crate::replica::Replica;
use crate::scenario::{Deed, Scenario};

/// More steps than any scenario needs by two orders of magnitude: beyond it, a run does not converge.
const MAX_STEPS: u32 = 50_000;

/// How much slower a slow replica is: enough for the others to do a whole deletion in between.
const SLOWNESS: u8 = 20;

/// Simulated time after which nothing is awaited any more: longer than the longest back-off and every deadline used.
const HORIZON: Duration = Duration::from_hours(12);

/// The same in a world with a GitHub: a webhook may be a day late, and the poll after it six hours away.
const HUB_HORIZON: Duration = Duration::from_hours(36);

/// So long after a poll, the next one of any scenario is not due yet.
const BETWEEN_POLLS: Duration = Duration::from_mins(10);

/// How to run a scenario.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub replicas: usize,
    pub faults: Vec<Injection>,
    pub guards: Guards,
    pub keep_trace: bool,
    pub meanwhile: Option<Meanwhile>,
}

/// Something that somebody does in the middle of everything: after so many changes, as soon as it is possible.
#[derive(Clone, Copy, Debug)]
pub struct Meanwhile {
    pub changes: usize,
    pub deed: fn() -> Deed,
}

impl Setup {
    /// In a world with a GitHub the clock does not jump: there is one clock for all of it, and GitHub's is never set.
    #[must_use]
    pub fn fit_for(&self, scenario: &Scenario) -> Self {
        let mut setup = self.clone();
        if scenario.github.is_some() {
            setup.faults.retain(|injection| !matches!(injection.fault, Fault::ClockJump { .. }));
        }
        setup
    }

    /// One replica, no faults, first come first served: what every other run is compared with.
    pub fn plain() -> Self {
        let (faults, guards) = (Vec::new(), Guards::default());
        Self { seed: 0, replicas: 1, faults, guards, keep_trace: false, meanwhile: None }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    pub summary: Summary,
    pub violations: Vec<Violation>,
    pub requests: u32,
    /// How often something changed.
    pub changes: usize,
    /// Every right that was used.
    pub used: BTreeSet<Used>,
    pub trace_hash: String,
    pub trace: Vec<String>,
    /// The faults that were met, and by which requests.
    pub struck: Vec<(Fault, String)>,
    /// Everything that happened, if the trace was to be kept.
    pub history: Vec<Happened>,
}

/// A right that a machine used: its name, the verb, and `group/resource[/part]`.
pub type Used = (&'static str, &'static str, String);

#[derive(Debug)]
enum Action {
    Script,
    Node(usize),
    Deliver(usize, Kind),
    Look(usize, Work),
    Send(usize, usize),
    Webhook(usize),
}

struct World<'a> {
    setup: &'a Setup,
    scenario: &'a Scenario,
    router: Arc<Router>,
    ground: Ground,
    replicas: Vec<Replica>,
    script: std::collections::VecDeque<crate::scenario::Deed>,
    rng: fastrand::Rng,
    sky: Arc<Sky>,
    /// Who acts, where only one may: GitHub compares and swaps nothing, so in a world with one the replicas take turns,
    /// as the leader's Lease has it.
    leader: Option<usize>,
    mail: Mail,
    used: BTreeSet<Used>,
    slow: bool,
    /// What somebody has yet to do, in the middle of everything.
    meanwhile: Option<(usize, Deed)>,
    violations: Vec<Violation>,
}

/// Runs a scenario once. Compared with the plain run only if `base` is given.
pub fn run(scenario: &Scenario, setup: &Setup, base: Option<&Summary>) -> Run {
    let setup = &setup.fit_for(scenario);
    let base = base.filter(|_| scenario.is_comparable(&setup.faults));
    let router = Arc::new(Router::new((scenario.machines)(setup.guards)));
    let ground = Ground::new(scenario.own_kinds, setup.keep_trace).with_hub(scenario.github);
    let sky = Sky::new(&setup.faults, &ground.env);
    let replicas = (0..setup.replicas.max(1))
        .map(|_| Replica::start(&router, setup.guards, &ground, ports(&ground, &sky, setup.guards)))
        .collect();
    let mut world = World {
        setup,
        scenario,
        router,
        ground,
        replicas,
        script: (scenario.script)().into(),
        rng: fastrand::Rng::with_seed(setup.seed),
        sky,
        leader: scenario.github.map(|_| 0),
        mail: Mail::default(),
        used: BTreeSet::new(),
        slow: scenario.stalls && setup.seed % 2 == 1,
        meanwhile: setup.meanwhile.map(|meanwhile| (meanwhile.changes, (meanwhile.deed)())),
        violations: Vec::new(),
    };
    world.play();
    world.judge(base)
}

impl World<'_> {
    fn play(&mut self) {
        for _ in 0..MAX_STEPS {
            self.interrupt();
            let actions = self.actions();
            if actions.is_empty() {
                if !self.advance_clock() {
                    if !self.script.is_empty() {
                        self.broken(
                            Oracle::Converges,
                            format!("{} deeds were never possible", self.script.len()),
                        );
                    }
                    return;
                }
                continue;
            }
            if self.hands_over() {
                continue;
            }
            let pick = self.pick(&actions);
            if let Some(action) = actions.into_iter().nth(pick) {
                self.act(action);
            }
        }
        self.broken(Oracle::Converges, format!("still busy after {MAX_STEPS} steps"));
    }

    /// Somebody does what they do in the middle of everything, if that is now.
    fn interrupt(&mut self) {
        let ground = &self.ground;
        let now =
            |(changes, deed): &mut (usize, Deed)| ground.history.len() >= *changes && (deed.when)(ground);
        if let Some((_, deed)) = self.meanwhile.take_if(now)
            && let Err(what) = deed.perform(&mut self.ground)
        {
            self.broken(Oracle::EndsWell, what);
        }
    }

    /// Now and then another replica takes over, in the middle of whatever is going on.
    fn hands_over(&mut self) -> bool {
        let (Some(leader), true) = (self.leader, self.replicas.len() > 1 && self.setup.seed != 0) else {
            return false;
        };
        if self.rng.u8(..) != 0 {
            return false;
        }
        self.take_over(leader);
        true
    }

    /// The other replica leads from now on.
    fn take_over(&mut self, from: usize) {
        let next = (from + 1) % self.replicas.len().max(1);
        self.leader = Some(next);
        if let Some(deposed) = self.replicas.get_mut(from).filter(|_| next != from) {
            deposed.abandon();
        }
        if let Some(leader) = self.replicas.get_mut(next) {
            leader.lead();
        }
    }

    /// Which of the things that could happen does. The plain run takes the first, so that it is one run.
    fn pick(&mut self, actions: &[Action]) -> usize {
        if self.setup.seed == 0 {
            return 0;
        }
        let pick = self.rng.usize(0..actions.len());
        let is_slow = |action: Option<&Action>| matches!(action, Some(Action::Send(index, _)) if *index == 0);
        // In every other world a replica's requests are slow to leave, so that what it decided is long past by then.
        if self.slow && is_slow(actions.get(pick)) && self.rng.u8(0..SLOWNESS) != 0 {
            return self.rng.usize(0..actions.len());
        }
        pick
    }

    /// Everything that could happen next, in a fixed order.
    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (index, replica) in self.replicas.iter().enumerate() {
            let leads = self.leader.is_none_or(|leader| leader == index);
            actions.extend((0..replica.running()).map(|slot| Action::Send(index, slot)));
            let kinds = replica.deliverable(&self.ground);
            actions.extend(kinds.into_iter().map(|kind| Action::Deliver(index, kind)));
            actions
                .extend(replica.startable().filter(|_| leads).map(|item| Action::Look(index, item.clone())));
        }
        actions.extend((0..kubelet::movable(&self.ground).count()).map(Action::Node));
        actions.extend((0..self.mail.due(self.ground.now())).map(Action::Webhook));
        if self.script.front().is_some_and(|deed| (deed.when)(&self.ground)) {
            actions.push(Action::Script);
        }
        actions
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Script => {
                if let Some(deed) = self.script.pop_front()
                    && let Err(what) = deed.perform(&mut self.ground)
                {
                    self.broken(Oracle::EndsWell, what);
                }
                if let Some(hub) = &self.ground.hub {
                    self.mail.collect(hub, self.ground.now());
                }
            }
            Action::Node(index) => {
                let request =
                    kubelet::movable(&self.ground).nth(index).map(|pod| kubelet::step(&self.ground, pod));
                if let Some(request) = request {
                    self.ground.send("node", request);
                }
            }
            Action::Deliver(index, kind) => {
                if let Some(replica) = self.replicas.get_mut(index) {
                    replica.deliver(&self.ground, &kind);
                }
            }
            Action::Look(index, item) => {
                let now = self.ground.now();
                if let Some(Err(fault)) = self.replicas.get_mut(index).map(|replica| {
                    let seen = replica.has_seen_up_to(&self.ground);
                    replica.look(&item, now, seen)
                }) {
                    self.broken(Oracle::NoFault, fault.to_string());
                }
            }
            Action::Send(index, slot) => self.send(index, slot),
            Action::Webhook(which) => self.webhook(which),
        }
    }

    /// Drives one half-applied plan one request further, through whatever fault waits there.
    fn send(&mut self, index: usize, slot: usize) {
        let now = self.ground.now();
        let jitter = self.rng.f64();
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if let Some((call, ports)) = replica.asking(slot) {
            // A port in a simulation answers at once; one that would wait is not there.
            let heard = ports.call(&call).now_or_never();
            let answer = heard.unwrap_or_else(|| Err(Failure::unanswered(call.to_string(), "no answer")));
            // An undo is stored by the port itself.
            self.ground.catch_up();
            if self.sky.take_crash() {
                return self.crash(index);
            }
            replica.heard(slot, call, answer);
            if self.sky.take_jump() {
                self.tick();
            }
            return;
        }
        let Some(applying) = replica.applying(slot) else { return };
        let Some(request) = applying.ask() else { return replica.finish(slot, now, jitter) };
        let request = self.setup.guards.tamper(request);
        let since = replica.decided_since(slot);
        self.used.extend(right(replica.machine_at(slot), &request));
        let (at, fault) = self.sky.next();
        if let Some(fault) = fault {
            self.ground.trace().line(|| format!("fault at {at}: {fault}"));
            self.ground.trace().strike(fault, format!("{} {}", request.method(), request.uri()));
        }
        let who = if index == 0 { "replica 0" } else { "replica 1" };
        let status = |code: u16, reason: &str| {
            let retry = if code == 429 { r#","details":{"retryAfterSeconds":1}"# } else { "" };
            (
                code,
                format!(
                    r#"{{"kind":"Status","reason":"{reason}","message":"injected","code":{code}{retry}}}"#
                ),
            )
        };
        let injected = match fault {
            None | Some(Fault::Gone | Fault::Duplicate | Fault::ClockJump { .. }) => None,
            Some(Fault::CrashBefore) => return self.crash(index),
            Some(Fault::CrashAfter) => {
                self.ground.send_since(who, request, since);
                return self.crash(index);
            }
            Some(Fault::ReplyLost) => {
                self.ground.send_since(who, request.clone(), since);
                Some(None)
            }
            Some(Fault::Timeout) => Some(None),
            Some(Fault::Conflict) => Some(Some(status(409, "Conflict"))),
            Some(Fault::TooManyRequests) => Some(Some(status(429, "TooManyRequests"))),
            Some(Fault::ServerError) => Some(Some(status(500, "InternalError"))),
            Some(Fault::ServerErrorAfterwards) => {
                self.ground.send_since(who, request.clone(), since);
                Some(Some(status(500, "InternalError")))
            }
        };
        let own = request.method() == http::Method::PATCH;
        let real = if injected.is_none() { Some(self.ground.send_since(who, request, since)) } else { None };
        if own && self.undisturbed() && real.as_ref().is_some_and(|(code, _)| *code == 409) {
            self.broken(Oracle::KnowsItself, "a write was refused though nobody else writes here".to_owned());
        }
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if let Some(applying) = replica.applying(slot) {
            match (&injected, &real) {
                (Some(None), _) | (None, None) => applying.answer(Answer::Lost("injected")),
                (Some(Some((code, body))), _) => {
                    applying.answer(Answer::Received {
                        code: *code,
                        retry_after: None,
                        body: body.as_bytes(),
                    });
                }
                (None, Some((code, body))) => {
                    applying.answer(Answer::Received { code: *code, retry_after: None, body });
                }
            }
        }
        match fault {
            Some(Fault::Gone) => replica.relist(&self.ground),
            Some(Fault::Duplicate) => replica.deliver_again(),
            Some(Fault::ClockJump { seconds }) => {
                let now = self.ground.now();
                let jump = SignedDuration::from_secs(seconds.into());
                self.ground.env.set(now.checked_add(jump).unwrap_or(now));
                self.tick();
            }
            _ => {}
        }
    }

    /// A webhook arrives, twice, late or never.
    fn webhook(&mut self, which: usize) {
        let fate = if self.setup.seed == 0 { Fate::Arrives } else { Fate::drawn(&mut self.rng) };
        let now = self.ground.now();
        let Some(view) = self.replicas.first().map(Replica::view) else { return };
        for nudge in self.mail.take(which, fate, view, now) {
            self.ground.send("webhook", nudge);
        }
    }

    /// Whether this world has one replica, no faults, and nobody else who writes what it writes.
    fn undisturbed(&self) -> bool {
        self.scenario.alone && self.replicas.len() == 1 && self.setup.faults.is_empty()
    }

    /// The process dies and comes back: memory is gone, caches are listed anew.
    fn crash(&mut self, index: usize) {
        let ports = ports(&self.ground, &self.sky, self.setup.guards);
        let fresh = Replica::start(&self.router, self.setup.guards, &self.ground, ports);
        if let Some(replica) = self.replicas.get_mut(index) {
            *replica = fresh;
        }
        if self.leader == Some(index) && self.rng.bool() {
            self.take_over(index);
        }
    }

    fn tick(&mut self) {
        let now = self.ground.now();
        for replica in &mut self.replicas {
            replica.tick(now);
        }
    }

    /// Moves on to the next timer; false when there is none within reach.
    fn advance_clock(&mut self) -> bool {
        let next = self.replicas.iter().filter_map(Replica::next_timer).chain(self.mail.next()).min();
        let horizon = if self.ground.hub.is_some() { HUB_HORIZON } else { HORIZON };
        let reach = horizon + fault::set_back(&self.setup.faults);
        let end = DAWN.checked_add(reach).unwrap_or(Timestamp::MAX);
        match next {
            Some(at) if at <= end => {
                self.ground.env.set(at.max(self.ground.now()));
                self.tick();
                true
            }
            Some(_) | None => false,
        }
    }

    fn judge(mut self, base: Option<&Summary>) -> Run {
        let (requests, summary) = (self.sky.requests(), Summary::of(&self.ground));
        let (trace_hash, trace) = (self.ground.trace().hash(), self.ground.trace().lines());
        if self.violations.is_empty() {
            self.violations = oracle::judge(self.scenario, &self.ground, &summary, base);
            self.rest();
        }
        let changes = self.ground.history.len();
        let (struck, history) = (self.ground.trace().struck(), self.ground.kept_history());
        let Self { violations, used, .. } = self;
        Run { summary, violations, requests, changes, used, trace_hash, trace, struck, history }
    }

    /// A fresh replica looks at everything once more: nothing is left to say or do.
    fn rest(&mut self) {
        // Not at a moment at which something is due anyway.
        let later = self.ground.now().checked_add(BETWEEN_POLLS).unwrap_or(Timestamp::MAX);
        self.ground.env.set(later);
        let ports = ports(&self.ground, &self.sky, self.setup.guards);
        let mut replica = Replica::start(&self.router, self.setup.guards, &self.ground, ports);
        let now = self.ground.now();
        let items: Vec<Work> = replica.startable().cloned().collect();
        for item in items {
            if let Err(fault) = replica.look(&item, now, self.ground.revision()) {
                self.broken(Oracle::NoFault, fault.to_string());
            }
            if let Some(request) = replica.applying(0).and_then(|applying| applying.ask()) {
                let body = String::from_utf8_lossy(request.body()).into_owned();
                self.broken(Oracle::Quiet, format!("{} {} {body}", request.method(), request.uri()));
                return;
            }
            if replica.running() > 0 {
                replica.finish(0, now, 0.5);
            }
            if let Some((call, _)) = replica.asking(0) {
                self.broken(Oracle::Quiet, format!("asks outside: {call}"));
                return;
            }
        }
    }

    fn broken(&mut self, oracle: Oracle, what: String) {
        self.violations.push(Violation { oracle, what });
    }
}

/// The ports of one replica.
fn ports(ground: &Ground, sky: &Arc<Sky>, guards: Guards) -> Ports {
    match &ground.hub {
        Some(hub) => {
            let weather = Arc::clone(sky) as Arc<dyn Weather>;
            hub.ports(&ground.env, &ground.server, weather, ground.trace().clone(), guards)
        }
        None => {
            let weather = Arc::clone(sky) as Arc<dyn Weather>;
            let trace = ground.trace().clone();
            acting::ports(&ground.server, &ground.env, weather, trace, guards)
        }
    }
}

/// The right that a write needs; reads are covered by watching.
fn right(machine: &'static str, request: &Request<Vec<u8>>) -> Option<Used> {
    let verb = match request.method().as_str() {
        "POST" => "create",
        "PATCH" => "patch",
        "PUT" => "update",
        "DELETE" => "delete",
        _ => return None,
    };
    let mut parts = request.uri().path().split('/').skip(1);
    let group = match (parts.next()?, parts.next()?) {
        ("api", _) => "",
        (_, group) => {
            parts.next()?;
            group
        }
    };
    let mut rest: Vec<&str> = parts.collect();
    // `namespaces/<namespace>/<resource>/…`, unless the Namespace itself is meant.
    if rest.first() == Some(&"namespaces")
        && rest.len() > 2
        && rest.get(2) != Some(&"finalize")
        && rest.get(2) != Some(&"status")
    {
        rest.drain(..2);
    }
    let resource = match rest.as_slice() {
        [resource] | [resource, _] => format!("{group}/{resource}"),
        [resource, _, part, ..] => format!("{group}/{resource}/{part}"),
        [] => return None,
    };
    Some((machine, verb, resource))
}
