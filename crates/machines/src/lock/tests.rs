use super::*;
use crate::cache::World;
use crate::machine::BoundPlan;
use crate::plan::Wake;
use crate::testing::{CONFIG_MAP, Cluster};
use crate::view::View;
use proptest::prelude::*;

const SYSTEM: &str = "pawl-system";

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn holder(name: &str) -> Holder {
    let reference = |prefix: &str, uid: &str| Reference {
        kind: CONFIG_MAP,
        key: Key::new(Some("n"), &format!("{prefix}{name}")),
        uid: uid.to_owned(),
    };
    Holder { unit: reference("unit-", &format!("configmap-unit-{name}")), run: Some(reference("run-", "")) }
}

fn now() -> Timestamp {
    crate::testing::START.parse().unwrap()
}

fn cluster() -> Cluster {
    let unit = |name: &str| format!("---\nkind: ConfigMap\nmetadata: {{name: unit-{name}}}\n");
    Cluster::of(&[CONFIG_MAP, LEASE], &["a", "b", "c"].map(unit).concat())
}

fn plan(cluster: &Cluster, name: &str, steps: Vec<Step>) -> (BoundPlan, Arc<Object>) {
    let me = cluster.world.get(&CONFIG_MAP, &holder(name).unit.key).unwrap();
    let plan = BoundPlan {
        machine: "test",
        basis: me.reference(),
        resource_version: me.resource_version().to_owned(),
        fenced: false,
        in_any_order: false,
        steps,
        notes: vec![],
        status: None,
        asks: vec![],
        wake: Wake::OnChange,
    };
    (plan, me)
}

fn claims(world: &World, name: &str, targets: &[&str]) -> Claim {
    let targets: Vec<Target> = targets.iter().map(|text| target(text)).collect();
    claim(SYSTEM, &targets, |key| world.get(&LEASE, key), &holder(name), &Marks::new(), now())
}

/// Looks and acts until the answer is no longer "take these".
fn settle(cluster: &mut Cluster, name: &str, targets: &[&str]) -> Claim {
    for _ in 0..10 {
        let found = claims(&cluster.world, name, targets);
        let steps = match &found {
            Claim::Take(steps) => steps.clone(),
            Claim::Busy { give_back, .. } if !give_back.is_empty() => give_back.clone(),
            Claim::Have | Claim::Busy { .. } => return found,
        };
        let (plan, me) = plan(cluster, name, steps);
        cluster.apply(plan, me, usize::MAX);
    }
    panic!("never decided");
}

fn lease(cluster: &Cluster, text: &str) -> Arc<Object> {
    cluster.world.get(&LEASE, &key(SYSTEM, &target(text))).unwrap()
}

const WEB: &str = "prod/deployment/web";
const DB: &str = "prod/statefulset/db";

#[test]
fn the_first_takes_it_and_the_second_learns_who_has_it() {
    let mut cluster = cluster();
    assert_eq!(settle(&mut cluster, "a", &[WEB]), Claim::Have);
    let lease = lease(&cluster, WEB);
    assert_eq!(lease.raw()["spec"]["holderIdentity"], "ConfigMap n/unit-a (configmap-unit-a)");
    assert_eq!(lease.annotation(TARGET), Some(WEB));
    let Claim::Busy { target, holder, give_back } = settle(&mut cluster, "b", &[WEB]) else { panic!() };
    assert_eq!(
        (target.to_string().as_str(), holder.as_str(), give_back.len()),
        (WEB, "ConfigMap n/unit-a", 0)
    );
}

#[test]
fn a_lock_names_its_run_and_its_uid_as_soon_as_that_is_known() {
    let mut cluster = cluster();
    assert_eq!(settle(&mut cluster, "a", &[WEB]), Claim::Have);
    let run = |cluster: &Cluster| match read(Some(&lease(cluster, WEB))) {
        Lock::Held(holder) => holder.run.unwrap(),
        other @ Lock::Free | other @ Lock::Unreadable(_) => panic!("{other:?}"),
    };
    assert_eq!((run(&cluster).key.name.as_str(), run(&cluster).uid.as_str()), ("run-a", ""));
    let mut me = holder("a");
    me.run.as_mut().unwrap().uid = "configmap-run-a".to_owned();
    let lease_of = |world: &World| {
        let world = world.clone();
        move |key: &Key| world.get(&LEASE, key)
    };
    let again = |cluster: &Cluster, me: &Holder| {
        claim(SYSTEM, &[target(WEB)], lease_of(&cluster.world), me, &Marks::new(), now())
    };
    let Claim::Take(steps) = again(&cluster, &me) else { panic!("the UID is not on the lock yet") };
    let (plan, basis) = plan(&cluster, "a", steps);
    assert!(cluster.apply(plan, basis, usize::MAX).failure.is_none());
    assert_eq!(run(&cluster).uid, "configmap-run-a");
    // Neither who knows as much nor who knows less writes again.
    assert_eq!(again(&cluster, &me), Claim::Have);
    assert_eq!(again(&cluster, &holder("a")), Claim::Have);
}

#[test]
fn all_or_none_what_was_taken_is_given_back_when_another_is_busy() {
    let mut cluster = cluster();
    assert_eq!(settle(&mut cluster, "a", &[DB]), Claim::Have);
    assert_eq!(settle(&mut cluster, "b", &[WEB]), Claim::Have);
    let Claim::Busy { give_back, .. } = claims(&cluster.world, "b", &[DB, WEB]) else { panic!() };
    assert_eq!(give_back.len(), 1);
    assert!(matches!(settle(&mut cluster, "b", &[DB, WEB]), Claim::Busy { .. }));
    assert!(cluster.get(&LEASE, &key(SYSTEM, &target(WEB))).is_none());
}

/// As earlier units left them.
fn free_leases(cluster: &mut Cluster) {
    for text in [WEB, DB] {
        let at = key(SYSTEM, &target(text));
        cluster.put(json!({"kind": "Lease", "spec": {}, "metadata": {"name": at.name, "namespace": SYSTEM,
            "annotations": {"pawl.dev/last-success": "monday"}}}));
    }
}

#[test]
fn of_two_that_saw_it_free_one_wins() {
    for used_before in [false, true] {
        let mut cluster = cluster();
        if used_before {
            free_leases(&mut cluster);
        }
        let stale = cluster.world.clone();
        for name in ["a", "b"] {
            let Claim::Take(steps) = claims(&stale, name, &[WEB]) else { panic!() };
            let (plan, me) = plan(&cluster, name, steps);
            let outcome = cluster.apply(plan, me, usize::MAX);
            assert_eq!(outcome.failure.is_some(), name == "b");
            assert!(outcome.refusals.is_empty(), "losing a race is no refusal");
        }
        assert_eq!(claims(&cluster.world, "a", &[WEB]), Claim::Have);
    }
}

#[test]
fn it_is_freed_when_unit_and_run_can_do_nothing_more() {
    use Life::{Absent, Going, Over};
    let mut cluster = cluster();
    settle(&mut cluster, "a", &[WEB]);
    let lease = lease(&cluster, WEB);
    // How many are confirmed gone before it is freed; None keeps it.
    for (unit, run, expect) in [
        (Going, Going, None),
        (Going, Over, None),
        (Going, Absent, None),
        (Over, Going, None),
        (Absent, Going, None),
        (Over, Over, Some(0)),
        (Over, Absent, Some(1)),
        (Absent, Over, Some(1)),
        (Absent, Absent, Some(2)),
    ] {
        let steps = reap(&lease, unit, run);
        assert_eq!(steps.map(|steps| steps.len() - 1), expect, "{unit:?} {run:?}");
    }
}

#[test]
fn a_unit_that_is_still_there_keeps_its_lock_whatever_a_cache_says() {
    let mut cluster = cluster();
    settle(&mut cluster, "a", &[WEB]);
    let steps = reap(&lease(&cluster, WEB), Life::Absent, Life::Absent).unwrap();
    let (plan, me) = plan(&cluster, "b", steps);
    assert!(cluster.apply(plan, me, usize::MAX).failure.is_some());
    assert_eq!(claims(&cluster.world, "a", &[WEB]), Claim::Have);
}

#[test]
fn what_outlives_units_stays_when_the_lock_is_freed_and_taken_again() {
    let mut cluster = cluster();
    settle(&mut cluster, "a", &[WEB]);
    let at = key(SYSTEM, &target(WEB));
    cluster.edit(&LEASE, &at, &json!({"metadata": {"annotations": {"pawl.dev/last-success": "monday"}}}));
    let steps = reap(&lease(&cluster, WEB), Life::Over, Life::Over).unwrap();
    let (plan, me) = plan(&cluster, "b", steps);
    cluster.apply(plan, me, usize::MAX);
    assert_eq!(settle(&mut cluster, "b", &[WEB]), Claim::Have);
    let lease = lease(&cluster, WEB);
    assert_eq!(lease.annotation("pawl.dev/last-success"), Some("monday"));
    assert_eq!(lease.raw()["spec"]["leaseTransitions"], 1);
}

#[test]
fn a_lock_that_carries_nothing_else_is_gone_when_it_is_freed_and_never_somebody_elses() {
    let mut cluster = cluster();
    let marks = Marks::from([("example.com/mark", "m".to_owned())]);
    let Claim::Take(steps) = claim(SYSTEM, &[target(WEB)], |_| None, &holder("a"), &marks, now()) else {
        panic!()
    };
    let (taking, me) = plan(&cluster, "a", steps);
    cluster.apply(taking, me, usize::MAX);
    let first = lease(&cluster, WEB);
    assert_eq!((first.label(UNIT), first.label("example.com/mark")), (Some("configmap-unit-a"), Some("m")));
    assert_eq!(held_by(&cluster.world, "configmap-unit-a").len(), 1);
    for _ in 0..2 {
        let (freeing, me) = plan(&cluster, "a", vec![free(&first)]);
        assert!(cluster.apply(freeing, me, usize::MAX).failure.is_none(), "gone already is done");
        assert!(cluster.get(&LEASE, &first.key()).is_none());
    }
    assert_eq!(settle(&mut cluster, "b", &[WEB]), Claim::Have);
    let (freeing, me) = plan(&cluster, "a", vec![free(&first)]);
    assert!(cluster.apply(freeing, me, usize::MAX).failure.is_some());
    assert_eq!(claims(&cluster.world, "b", &[WEB]), Claim::Have);
}

#[test]
fn a_runs_uid_is_recorded_once_it_is_known() {
    let mut cluster = cluster();
    settle(&mut cluster, "a", &[WEB]);
    let mut known = holder("a");
    known.run.as_mut().unwrap().uid = "r1".to_owned();
    let step = record(&lease(&cluster, WEB), &known).unwrap();
    let (plan, me) = plan(&cluster, "a", vec![step]);
    cluster.apply(plan, me, usize::MAX);
    assert_eq!(read(Some(&lease(&cluster, WEB))), Lock::Held(Box::new(known.clone())));
    assert_eq!(record(&lease(&cluster, WEB), &known), None);
    assert_eq!(record(&lease(&cluster, WEB), &holder("b")), None, "only the holder writes");
}

#[test]
fn a_lease_that_somebody_else_wrote_is_left_to_people() {
    let at = key(SYSTEM, &target(WEB));
    for manifest in [
        json!({"kind": "Lease", "metadata": {"name": at.name, "namespace": SYSTEM}, "spec": {"holderIdentity": "me"}}),
        json!({"kind": "Lease", "metadata": {"name": at.name, "namespace": SYSTEM, "annotations": {HOLDER: "{"}}}),
    ] {
        let mut cluster = cluster();
        cluster.put(manifest);
        assert!(matches!(settle(&mut cluster, "a", &[WEB]), Claim::Busy { .. }));
        assert_eq!(reap(&lease(&cluster, WEB), Life::Over, Life::Over), None);
    }
}

#[test]
fn the_order_of_waiting_is_sequence_then_age_then_uid() {
    let place = |sequence, second, uid: &str| Place {
        sequence,
        spot: Spot { created_at: Timestamp::from_second(second).unwrap(), uid: uid.to_owned() },
    };
    let mut queue =
        [place(Some(2), 1, "a"), place(Some(1), 9, "d"), place(Some(1), 5, "c"), place(Some(1), 5, "b")];
    queue.sort();
    assert_eq!(queue.map(|place| place.spot.uid), ["b", "c", "d", "a"]);
}

/// Units that want targets, start a run when they hold them, and are over when it is: whatever each of them sees late,
/// and wherever each of them dies, no target ever has two runs at a time.
struct Model {
    cluster: Cluster,
    /// Every state the cluster has been in.
    past: Vec<World>,
    /// The earliest state each unit may still see: its own last write.
    seen: [usize; 3],
}

const WANTED: [(&str, &[&str]); 3] = [("a", &[WEB, DB]), ("b", &[DB]), ("c", &[WEB])];

impl Model {
    fn flag(world: &World, key: &Key, flag: &str) -> Option<bool> {
        Some(world.get(&CONFIG_MAP, key)?.raw().pointer(&format!("/data/{flag}")).is_some())
    }

    fn life(world: &World, key: &Key) -> Life {
        match Self::flag(world, key, "over") {
            None => Life::Absent,
            Some(true) => Life::Over,
            Some(false) => Life::Going,
        }
    }

    fn decide(view: &World, at: usize) -> Vec<Step> {
        let (name, targets) = WANTED[at];
        let Holder { unit, run } = holder(name);
        let (unit, run) = (unit.key, run.unwrap().key);
        let reaped = view.list(&LEASE, None).into_iter().find_map(|lease| match read(Some(&lease)) {
            Lock::Held(by) => {
                reap(&lease, Self::life(view, &by.unit.key), Self::life(view, &by.run.as_ref().unwrap().key))
            }
            Lock::Free | Lock::Unreadable(_) => None,
        });
        match (reaped, Self::life(view, &unit), Self::life(view, &run)) {
            (Some(steps), _, _) => steps,
            (None, Life::Going, Life::Over) => {
                let me = view.get(&CONFIG_MAP, &unit).unwrap();
                vec![patch(&me, json!({"data": {"over": "yes"}}))]
            }
            (None, Life::Going, Life::Absent) => match claims(view, name, targets) {
                Claim::Have => {
                    let manifest = json!({"metadata": {"name": run.name, "namespace": "n"}});
                    vec![Step::Create { kind: CONFIG_MAP, manifest, adopt: Adopt::Anyones }]
                }
                Claim::Take(steps) | Claim::Busy { give_back: steps, .. } => steps,
            },
            (None, _, _) => vec![],
        }
    }

    fn act(&mut self, at: usize, late: usize, requests: usize) {
        let oldest = self.seen[at];
        let view = self.past[oldest + late % (self.past.len() - oldest)].clone();
        let steps = Self::decide(&view, at);
        let wrote = !steps.is_empty();
        let (plan, me) = plan(&self.cluster, WANTED[at].0, steps);
        self.cluster.apply(plan, me, requests);
        self.past.push(self.cluster.world.clone());
        if wrote {
            self.seen[at] = self.past.len() - 1;
        }
    }

    fn end_run(&mut self, at: usize) {
        let run = holder(WANTED[at].0).run.unwrap().key;
        if self.cluster.get(&CONFIG_MAP, &run).is_some() {
            self.cluster.edit(&CONFIG_MAP, &run, &json!({"data": {"over": "yes"}}));
            self.past.push(self.cluster.world.clone());
        }
    }

    fn runs_on(&self, wanted: &str) -> usize {
        let going = |(name, targets): &&(&str, &[&str])| {
            let run = holder(name).run.unwrap().key;
            targets.contains(&wanted) && Self::life(&self.cluster.world, &run) == Life::Going
        };
        WANTED.iter().filter(going).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn never_two_runs_on_one_target(
        used_before in any::<bool>(),
        schedule in prop::collection::vec((0..3_usize, any::<usize>(), 1..5_usize, 0..4_u8), 1..80)
    ) {
        let mut cluster = cluster();
        if used_before {
            free_leases(&mut cluster);
        }
        let mut model = Model { past: vec![cluster.world.clone()], cluster, seen: [0; 3] };
        for (at, late, requests, what) in schedule {
            if what == 0 { model.end_run(at) } else { model.act(at, late, requests) }
            for wanted in [WEB, DB] {
                prop_assert!(model.runs_on(wanted) <= 1, "two runs on {wanted}");
            }
        }
        // Faults end: everybody gets a turn with a fresh view, and all are done in the end.
        for _ in 0..30 {
            for at in 0..3 {
                model.seen[at] = model.past.len() - 1;
                model.act(at, 0, usize::MAX);
                prop_assert!(model.runs_on(WEB) <= 1 && model.runs_on(DB) <= 1);
            }
            (0..3).for_each(|at| model.end_run(at));
        }
        for (name, _) in WANTED {
            prop_assert_eq!(Model::life(&model.cluster.world, &holder(name).unit.key), Life::Over);
        }
    }
}
