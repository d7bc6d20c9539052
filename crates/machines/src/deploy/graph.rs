//! What may be triggered next, and if nothing, why: the classes A to E of an Execution's items as one pure function.
//!
//! | class | an item that was triggered in this job … |
//! |---|---|
//! | A | and is done: it succeeded (or, when things are taken down, is gone) |
//! | B | and failed |
//! | C | and still runs |
//! | | an item that was not … |
//! | D | and waits for nothing but this |
//! | E | and waits for others |
//!
//! All A: done. Some B: nothing new is triggered, what runs is waited for, then the job has failed. Otherwise D is
//! triggered. Neither C nor D but E: stuck, which only a cycle can bring about.
//!
//! Building up, an item waits for what it depends on; taking down, for what depends on it. Orphans are taken down before
//! anything is built up. All of it costs O(items + edges), whatever the graph looks like.

/// Who depends on whom, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// What an item depends on.
    before: Edges,
    /// What depends on it.
    after: Edges,
}

/// A list for each item, one behind another: each look goes over all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Edges {
    /// Where each item's list ends.
    ends: Vec<usize>,
    lists: Vec<usize>,
}

impl Edges {
    fn of(lists: &[Vec<usize>]) -> Self {
        let mut end = 0;
        let ends = lists.iter().map(|list| {
            end += list.len();
            end
        });
        Self { ends: ends.collect(), lists: lists.concat() }
    }

    fn at(&self, at: usize) -> &[usize] {
        let end = |at: usize| self.ends.get(at).copied();
        let start = at.checked_sub(1).and_then(end).unwrap_or_default();
        self.lists.get(start..end(at).unwrap_or_default()).unwrap_or_default()
    }
}

impl Graph {
    /// Takes, for each item, the numbers of those it depends on. Numbers that nobody has are left out.
    pub fn of(mut before: Vec<Vec<usize>>) -> Self {
        let size = before.len();
        let mut after = vec![Vec::new(); size];
        for (at, others) in before.iter_mut().enumerate() {
            others.retain(|other| *other < size);
            others.sort_unstable();
            others.dedup();
            for other in others {
                if let Some(after) = after.get_mut(*other) {
                    after.push(at);
                }
            }
        }
        Self { before: Edges::of(&before), after: Edges::of(&after) }
    }

    /// The same with one more item that depends on nothing.
    #[must_use]
    pub fn with_one_more(mut self) -> Self {
        for edges in [&mut self.before, &mut self.after] {
            edges.ends.push(edges.lists.len());
        }
        self
    }

    pub fn len(&self) -> usize {
        self.before.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn waits_for(&self, direction: Direction, at: usize) -> &[usize] {
        match direction {
            Direction::Build => self.before.at(at),
            Direction::TakeDown => self.after.at(at),
        }
    }
}

/// Which way a job goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Build,
    TakeDown,
}

/// How an item stands in the current job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not triggered in this job.
    Waiting,
    /// Triggered and not finished, in this job or still in another.
    Running,
    /// Succeeded in this job; or gone, when it is to go.
    Done,
    /// Finished badly in this job; or missing, when it should be there.
    Failed,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    A,
    B,
    C,
    D,
    E,
}

/// What is to be done for a set of items; numbers are those of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is left.
    Done,
    /// These may start.
    Trigger(Vec<usize>),
    /// What runs has to finish first.
    Wait,
    /// These failed, and nothing runs any more.
    Failed(Vec<usize>),
    /// Nothing runs and nothing may start, but these are left.
    Stuck(Vec<usize>),
}

/// What is to be done in a job that builds up: first for the orphans, then for the items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub orphans: Next,
    pub items: Next,
}

/// The class of every item, in the order of their numbers. An item without a standing is done.
pub fn classes(graph: &Graph, direction: Direction, standing: &[Standing]) -> Vec<Class> {
    let stands = |at: usize| standing.get(at).copied().unwrap_or(Standing::Done);
    let class = |at: usize| match stands(at) {
        Standing::Done => Class::A,
        Standing::Failed => Class::B,
        Standing::Running => Class::C,
        Standing::Waiting => {
            let waits_for = graph.waits_for(direction, at);
            if waits_for.iter().all(|other| stands(*other) == Standing::Done) { Class::D } else { Class::E }
        }
    };
    (0..graph.len()).map(class).collect()
}

/// What the classes come to.
pub fn next(graph: &Graph, direction: Direction, standing: &[Standing]) -> Next {
    of(&classes(graph, direction, standing))
}

/// A job that builds up. Nothing is triggered on either side after a failure on either, and no item before the last
/// orphan is gone.
pub fn progress(orphans: (&Graph, &[Standing]), items: (&Graph, &[Standing])) -> Progress {
    let down = classes(orphans.0, Direction::TakeDown, orphans.1);
    let up = classes(items.0, Direction::Build, items.1);
    let (down_next, up_next) = (of(&down), of(&up));
    let has = |class: Class| down.contains(&class) || up.contains(&class);
    if has(Class::B) {
        let failed = |next: Next| match next {
            Next::Failed(_) | Next::Done => next,
            // What was not started will not be; the other side's failure ends the job.
            Next::Trigger(_) | Next::Wait | Next::Stuck(_) => Next::Failed(Vec::new()),
        };
        if has(Class::C) {
            return Progress { orphans: Next::Wait, items: Next::Wait };
        }
        return Progress { orphans: failed(down_next), items: failed(up_next) };
    }
    let items = match (&down_next, up_next) {
        (Next::Done, next) => next,
        (_, Next::Done) => Next::Done,
        (_, _) => Next::Wait,
    };
    // Stuck only if really nothing moves: an item may still be at an earlier job.
    let orphans = match down_next {
        Next::Stuck(_) if up.contains(&Class::C) => Next::Wait,
        Next::Done | Next::Trigger(_) | Next::Wait | Next::Failed(_) | Next::Stuck(_) => down_next,
    };
    Progress { orphans, items }
}

fn of(classes: &[Class]) -> Next {
    let those = |wanted: Class| -> Vec<usize> {
        classes.iter().enumerate().filter(|(_, class)| **class == wanted).map(|(at, _)| at).collect()
    };
    let running = classes.contains(&Class::C);
    let failed = those(Class::B);
    if !failed.is_empty() {
        return if running { Next::Wait } else { Next::Failed(failed) };
    }
    let free = those(Class::D);
    if !free.is_empty() {
        return Next::Trigger(free);
    }
    if running {
        return Next::Wait;
    }
    let left = those(Class::E);
    if left.is_empty() { Next::Done } else { Next::Stuck(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// `a: the item's standing, then what it depends on`, as in `"A BA.0 C.0,1"`.
    fn parse(line: &str) -> (Graph, Vec<Standing>) {
        let (mut before, mut standing) = (vec![], vec![]);
        for word in line.split_whitespace() {
            let (stands, others) = word.split_once('.').unwrap_or((word, ""));
            standing.push(match stands {
                "done" => Standing::Done,
                "failed" => Standing::Failed,
                "runs" => Standing::Running,
                "waits" => Standing::Waiting,
                other => panic!("{other}"),
            });
            before.push(others.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect());
        }
        (Graph::of(before), standing)
    }

    fn check(direction: Direction, line: &str, expect: &Next) {
        let (graph, standing) = parse(line);
        assert_eq!(next(&graph, direction, &standing), *expect, "{direction:?} {line}");
    }

    #[test]
    fn the_seeds_rules_row_by_row() {
        let check = |line, expect| check(Direction::Build, line, &expect);
        check("", Next::Done);
        check("done done.0", Next::Done);
        check("waits waits waits.0", Next::Trigger(vec![0, 1]));
        check("done runs waits.0 waits.1", Next::Trigger(vec![2]));
        check("done runs waits.0,1", Next::Wait);
        // A failure stops what is free, waits for what runs, and only then ends.
        check("failed runs waits", Next::Wait);
        check("failed done waits waits.0", Next::Failed(vec![0]));
        check("failed failed done", Next::Failed(vec![0, 1]));
        check("waits.1 waits.0", Next::Stuck(vec![0, 1]));
        check("runs waits.2 waits.1", Next::Wait);
        check("done waits.1", Next::Stuck(vec![1]));
    }

    #[test]
    fn taking_down_is_building_up_backwards() {
        let check = |line, expect| check(Direction::TakeDown, line, &expect);
        check("waits waits.0 waits.0 waits.1,2", Next::Trigger(vec![3]));
        check("waits waits.0 waits.0 done.1,2", Next::Trigger(vec![1, 2]));
        check("waits runs.0 done.0 done.1,2", Next::Wait);
        // Finished is not gone: what it depends on stays.
        check("waits failed.0", Next::Failed(vec![1]));
        check("waits.1 waits.0", Next::Stuck(vec![0, 1]));
    }

    #[test]
    fn orphans_go_before_anything_comes() {
        let check = |orphans: &str, items: &str, down: Next, up: Next| {
            let (orphans_parsed, items_parsed) = (parse(orphans), parse(items));
            let found = progress((&orphans_parsed.0, &orphans_parsed.1), (&items_parsed.0, &items_parsed.1));
            assert_eq!(found, Progress { orphans: down, items: up }, "{orphans} | {items}");
        };
        check("waits waits.0", "waits", Next::Trigger(vec![1]), Next::Wait);
        check("waits done.0", "waits", Next::Trigger(vec![0]), Next::Wait);
        check("done done.0", "waits", Next::Done, Next::Trigger(vec![0]));
        check("failed", "waits", Next::Failed(vec![0]), Next::Failed(vec![]));
        check("waits", "failed", Next::Failed(vec![]), Next::Failed(vec![0]));
        check("failed", "runs", Next::Wait, Next::Wait);
        check("failed", "done", Next::Failed(vec![0]), Next::Done);
        check("", "", Next::Done, Next::Done);
        check("waits", "", Next::Trigger(vec![0]), Next::Done);
    }

    #[test]
    fn a_million_edges_are_looked_at_once() {
        let size = 10_000_usize;
        let before: Vec<Vec<usize>> = (0..size)
            .map(|at| (at / 100 * 100..at / 100 * 100 + 100).map(|n| n.wrapping_sub(100)).collect())
            .collect();
        let graph = Graph::of(before);
        let mut standing = vec![Standing::Waiting; size];
        let mut rounds = 0;
        while let Next::Trigger(free) = next(&graph, Direction::Build, &standing) {
            assert_eq!(free.len(), 100);
            free.into_iter().for_each(|at| standing[at] = Standing::Done);
            rounds += 1;
        }
        assert_eq!(rounds, 100);
    }

    /// A random graph without cycles: an item depends only on items with smaller numbers.
    fn dag(max: usize) -> impl Strategy<Value = Vec<Vec<usize>>> {
        (1..=max).prop_flat_map(|size| {
            let edges = prop::collection::vec((0..size, 0..size), 0..size * 3);
            edges.prop_map(move |edges| {
                let mut before = vec![vec![]; size];
                for (a, b) in edges {
                    if a != b {
                        before[a.max(b)].push(a.min(b));
                    }
                }
                before
            })
        })
    }

    /// The definition in the dullest way: for each item, a look at all others.
    fn naive(before: &[Vec<usize>], direction: Direction, standing: &[Standing]) -> Next {
        let size = before.len();
        let pending = |at: usize| {
            (0..size).any(|other| {
                let edge = match direction {
                    Direction::Build => before[at].contains(&other),
                    Direction::TakeDown => before[other].contains(&at),
                };
                edge && standing[other] != Standing::Done
            })
        };
        let those = |wanted: &dyn Fn(usize) -> bool| (0..size).filter(|at| wanted(*at)).collect::<Vec<_>>();
        let is = |at: usize, wanted: Standing| standing[at] == wanted;
        let running = !those(&|at| is(at, Standing::Running)).is_empty();
        let failed = those(&|at| is(at, Standing::Failed));
        let free = those(&|at| is(at, Standing::Waiting) && !pending(at));
        let left = those(&|at| is(at, Standing::Waiting));
        match () {
            () if !failed.is_empty() && running => Next::Wait,
            () if !failed.is_empty() => Next::Failed(failed),
            () if !free.is_empty() => Next::Trigger(free),
            () if running => Next::Wait,
            () if left.is_empty() => Next::Done,
            () => Next::Stuck(left),
        }
    }

    /// Plays one job to its end: what is free is triggered, and dice say what finishes when and how.
    fn play(before: &[Vec<usize>], direction: Direction, failing: &BTreeSet<usize>, dice: &[usize]) {
        let graph = Graph::of(before.to_vec());
        let size = graph.len();
        let mut standing = vec![Standing::Waiting; size];
        let mut triggered = vec![0; size];
        let mut failed = false;
        let mut dice = dice.iter().cycle();
        loop {
            let found = next(&graph, direction, &standing);
            assert_eq!(found, naive(before, direction, &standing));
            let waits = found == Next::Wait;
            match found {
                Next::Trigger(free) => {
                    assert!(!failed, "nothing starts after a failure");
                    // A look may be cut short by a crash: only some of them are written.
                    let some = dice.next().unwrap() % free.len() + 1;
                    for at in free.into_iter().take(some) {
                        triggered[at] += 1;
                        standing[at] = Standing::Running;
                        for other in graph.waits_for(direction, at) {
                            assert_eq!(
                                standing[*other],
                                Standing::Done,
                                "{at} started before {other} was done"
                            );
                        }
                    }
                }
                Next::Wait => {}
                Next::Done => {
                    assert!(!failed && standing.iter().all(|one| *one == Standing::Done));
                    break;
                }
                Next::Failed(those) => {
                    assert!(failed && !standing.contains(&Standing::Running));
                    assert!(those.iter().all(|at| failing.contains(at)));
                    break;
                }
                Next::Stuck(_) => panic!("a graph without cycles is never stuck"),
            }
            let running: Vec<usize> = (0..size).filter(|at| standing[*at] == Standing::Running).collect();
            let finishing = dice.next().unwrap() % (running.len() + 1);
            let stay = dice.next().unwrap().is_multiple_of(3) && !waits;
            if let Some(at) = running.get(finishing.min(running.len().saturating_sub(1))).filter(|_| !stay) {
                let bad = failing.contains(at);
                standing[*at] = if bad { Standing::Failed } else { Standing::Done };
                failed |= bad;
            }
        }
        assert!(triggered.iter().all(|times| *times <= 1), "at most once per job");
        if failing.is_empty() {
            assert!(triggered.iter().all(|times| *times == 1));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn order_is_kept_and_each_starts_once_whatever_fails_and_whenever_it_ends(
            before in dag(200),
            failing in prop::collection::btree_set(0..200_usize, 0..4),
            dice in prop::collection::vec(any::<usize>(), 1..400),
            down in any::<bool>(),
        ) {
            let direction = if down { Direction::TakeDown } else { Direction::Build };
            play(&before, direction, &failing, &dice);
        }

        #[test]
        fn stuck_is_exactly_when_nothing_moves_and_something_is_left(
            edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..30),
            standing in prop::collection::vec(0..4_u8, 12),
            down in any::<bool>(),
        ) {
            let mut before = vec![vec![]; 12];
            for (a, b) in edges {
                before[a].push(b);
            }
            let standing: Vec<Standing> = standing.into_iter().map(|one| match one {
                0 => Standing::Waiting,
                1 => Standing::Running,
                2 => Standing::Done,
                _ => Standing::Failed,
            }).collect();
            let direction = if down { Direction::TakeDown } else { Direction::Build };
            let found = next(&Graph::of(before.clone()), direction, &standing);
            prop_assert_eq!(found, naive(&before, direction, &standing));
        }

        #[test]
        fn no_item_starts_while_an_orphan_is_left_and_both_ends_agree(
            orphans in dag(20), items in dag(40),
            down in prop::collection::vec(0..4_u8, 20), up in prop::collection::vec(0..4_u8, 40),
        ) {
            let stand = |dice: &[u8], size: usize| -> Vec<Standing> {
                dice.iter().take(size).map(|one| match one {
                    0 => Standing::Waiting,
                    1 => Standing::Running,
                    2 => Standing::Done,
                    _ => Standing::Failed,
                }).collect()
            };
            let (down, up) = (stand(&down, orphans.len()), stand(&up, items.len()));
            let found = progress((&Graph::of(orphans), &down), (&Graph::of(items), &up));
            let all: Vec<Standing> = down.iter().chain(&up).copied().collect();
            let left = |standing: &[Standing]| standing.iter().any(|one| *one != Standing::Done);
            let triggers = |next: &Next| matches!(next, Next::Trigger(_));
            if triggers(&found.items) {
                prop_assert!(!left(&down));
            }
            if all.contains(&Standing::Failed) {
                prop_assert!(!triggers(&found.items) && !triggers(&found.orphans));
                let ended = matches!(found.items, Next::Failed(_)) || matches!(found.orphans, Next::Failed(_));
                prop_assert_eq!(ended, !all.contains(&Standing::Running));
            } else {
                let stuck = matches!(found.items, Next::Stuck(_)) || matches!(found.orphans, Next::Stuck(_));
                prop_assert!(!stuck, "graphs without cycles");
                let done = found.items == Next::Done && found.orphans == Next::Done;
                prop_assert_eq!(done, !left(&all));
            }
        }
    }
}
