//! In which order can things be done that depend on each other, and if in none, why not?
//!
//! Everything costs O(nodes + edges) and nothing recurses, so a graph of ten thousand items is sorted in milliseconds
//! and a long chain cannot exhaust the stack. All problems are found together, so that a person mends them in one go.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Problems of one sort that are shown; a graph has as many as its author can type, a status has room for few.
const MAX_SHOWN: usize = 10;

/// A thing, and the names of the things that come before it.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    pub name: &'a str,
    pub depends_on: Vec<&'a str>,
}

impl<'a> Node<'a> {
    pub fn new(name: &'a str, depends_on: impl IntoIterator<Item = &'a str>) -> Self {
        Self { name, depends_on: depends_on.into_iter().collect() }
    }
}

/// Topological classes: what is in one depends only on what is in earlier ones, and on something in the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes<'a>(Vec<Vec<&'a str>>);

impl<'a> Classes<'a> {
    /// First things first; names are sorted within a class.
    pub fn forward(&self) -> impl Iterator<Item = &[&'a str]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// Everything that is wrong with a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// Names that were given twice.
    pub duplicates: Vec<String>,
    /// Who depends on which name that nobody has.
    pub unknown: Vec<(String, String)>,
    /// One short cycle for each knot, each starting at its smallest name; every name depends on the next, the last on
    /// the first.
    pub cycles: Vec<Vec<String>>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duplicates = self.duplicates.iter().map(|name| format!("{name:?} is there more than once"));
        let unknown = self
            .unknown
            .iter()
            .map(|(name, other)| format!("{name:?} depends on {other:?}, which is not there"));
        let cycles = self.cycles.iter().map(|cycle| {
            let first = cycle.first().cloned().unwrap_or_default();
            format!("{} -> {first} is a cycle", cycle.join(" -> "))
        });
        for (at, problem) in duplicates.chain(unknown).chain(cycles).enumerate() {
            write!(f, "{}{problem}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// Sorts a graph into classes.
///
/// # Errors
/// When a name is given twice or not at all, or things wait for themselves: all that was found, at most
/// ten of each sort.
pub fn classes<'a>(nodes: &[Node<'a>]) -> Result<Classes<'a>, Problems> {
    let mut problems = Problems::default();
    let graph = Graph::of(nodes, &mut problems);
    let (classes, leftover) = graph.peel();
    if leftover {
        problems.cycles = graph.cycles();
    }
    if problems == Problems::default() { Ok(Classes(classes)) } else { Err(problems) }
}

/// Nodes by number, in the order of their names.
struct Graph<'a> {
    names: Vec<&'a str>,
    /// What a node depends on.
    before: Vec<Vec<usize>>,
    /// What depends on it.
    after: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn of(nodes: &[Node<'a>], problems: &mut Problems) -> Self {
        let mut by_name: BTreeMap<&'a str, Vec<&'a str>> = BTreeMap::new();
        for Node { name, depends_on } in nodes {
            if by_name.insert(*name, depends_on.clone()).is_some() && problems.duplicates.len() < MAX_SHOWN {
                problems.duplicates.push((*name).to_owned());
            }
        }
        problems.duplicates.sort();
        problems.duplicates.dedup();
        let numbers: BTreeMap<&str, usize> =
            by_name.keys().enumerate().map(|(at, name)| (*name, at)).collect();
        let mut graph = Self { names: by_name.keys().copied().collect(), before: vec![], after: vec![] };
        graph.after.resize_with(graph.names.len(), Vec::new);
        for (at, (name, depends_on)) in by_name.into_iter().enumerate() {
            let mut before = Vec::with_capacity(depends_on.len());
            for other in depends_on {
                match numbers.get(other) {
                    Some(number) => before.push(*number),
                    None if problems.unknown.len() < MAX_SHOWN => {
                        problems.unknown.push((name.to_owned(), other.to_owned()));
                    }
                    None => {}
                }
            }
            // The same dependency twice is the same dependency.
            before.sort_unstable();
            before.dedup();
            for &other in &before {
                if let Some(after) = graph.after.get_mut(other) {
                    after.push(at);
                }
            }
            graph.before.push(before);
        }
        graph
    }

    /// Takes off class after class (Kahn); true if some nodes are never free.
    fn peel(&self) -> (Vec<Vec<&'a str>>, bool) {
        let mut missing: Vec<usize> = self.before.iter().map(Vec::len).collect();
        let mut class: Vec<usize> = (0..self.names.len()).filter(|at| missing.get(*at) == Some(&0)).collect();
        let (mut classes, mut taken) = (Vec::new(), 0_usize);
        while !class.is_empty() {
            taken = taken.saturating_add(class.len());
            classes.push(class.iter().map(|at| self.name(*at)).collect());
            let mut next = Vec::new();
            for &after in class.iter().flat_map(|at| edges(&self.after, *at)) {
                if let Some(left) = missing.get_mut(after) {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        next.push(after);
                    }
                }
            }
            next.sort_unstable();
            class = next;
        }
        (classes, taken < self.names.len())
    }

    /// One short cycle in each strongly connected component that has any.
    fn cycles(&self) -> Vec<Vec<String>> {
        let component = self.components();
        let mut first_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, of) in component.iter().enumerate() {
            first_of.entry(*of).or_insert(at);
        }
        let mut firsts: Vec<usize> = first_of.into_values().collect();
        firsts.sort_unstable();
        let cycles = firsts.into_iter().filter_map(|first| self.shortest_cycle(first, &component));
        let named = cycles.map(|cycle| cycle.into_iter().map(|at| self.name(at).to_owned()).collect());
        named.take(MAX_SHOWN).collect()
    }

    /// Breadth first along dependencies, without leaving the component, until `start` is met again.
    fn shortest_cycle(&self, start: usize, component: &[usize]) -> Option<Vec<usize>> {
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            for &next in edges(&self.before, at) {
                if next == start {
                    let back = |at: &usize| came_from.get(at).copied();
                    let mut cycle: Vec<usize> = std::iter::successors(Some(at), back).collect();
                    cycle.reverse();
                    return Some(cycle);
                }
                if component.get(next) == component.get(start) && !came_from.contains_key(&next) {
                    came_from.insert(next, at);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// The number of each node's strongly connected component (Tarjan, with a stack of our own).
    fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let size = self.names.len();
        let (mut order, mut low) = (vec![UNSEEN; size], vec![0; size]);
        let mut component = vec![UNSEEN; size];
        let (mut open, mut clock) = (Vec::new(), 0);
        for root in 0..size {
            // A frame is a node and how many of its edges were followed.
            let mut frames = if order.get(root) == Some(&UNSEEN) { vec![(root, 0)] } else { vec![] };
            while let Some((at, followed)) = frames.pop() {
                if followed == 0 {
                    set(&mut order, at, clock);
                    set(&mut low, at, clock);
                    clock += 1;
                    open.push(at);
                }
                match edges(&self.before, at).get(followed) {
                    Some(&next) => {
                        frames.push((at, followed + 1));
                        if get(&order, next) == UNSEEN {
                            frames.push((next, 0));
                        } else if get(&component, next) == UNSEEN {
                            let reached = get(&low, at).min(get(&order, next));
                            set(&mut low, at, reached);
                        }
                    }
                    None => {
                        if get(&low, at) == get(&order, at) {
                            while let Some(member) = open.pop() {
                                set(&mut component, member, at);
                                if member == at {
                                    break;
                                }
                            }
                        }
                        if let Some((parent, _)) = frames.last() {
                            let reached = get(&low, *parent).min(get(&low, at));
                            set(&mut low, *parent, reached);
                        }
                    }
                }
            }
        }
        component
    }

    fn name(&self, at: usize) -> &'a str {
        self.names.get(at).copied().unwrap_or_default()
    }
}

fn edges(lists: &[Vec<usize>], at: usize) -> &[usize] {
    lists.get(at).map(Vec::as_slice).unwrap_or_default()
}

fn get(numbers: &[usize], at: usize) -> usize {
    numbers.get(at).copied().unwrap_or_default()
}

fn set(numbers: &mut [usize], at: usize, value: usize) {
    if let Some(number) = numbers.get_mut(at) {
        *number = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// `a b<a c<a,b`
    fn sorted(line: &str) -> Result<String, String> {
        let nodes: Vec<Node<'_>> = line
            .split_whitespace()
            .map(|node| {
                let (name, before) = node.split_once('<').unwrap_or((node, ""));
                Node::new(name, before.split(',').filter(|other| !other.is_empty()))
            })
            .collect();
        let classes = classes(&nodes).map_err(|problems| problems.to_string())?;
        Ok(classes.forward().map(|class| class.join(" ")).collect::<Vec<_>>().join(" | "))
    }

    #[test]
    fn what_can_be_done_together_is_in_one_class() {
        assert_eq!(sorted("d<b,c c<a b<a a"), Ok("a | b c | d".into()));
        assert_eq!(sorted("a b c<a,a"), Ok("a b | c".into()));
        assert_eq!(sorted(""), Ok(String::new()));
    }

    #[test]
    fn all_problems_are_told_together() {
        let told = sorted("a a b<nobody c<c x<z y<x z<y w<x").unwrap_err();
        assert_eq!(
            told,
            "\"a\" is there more than once; \"b\" depends on \"nobody\", which is not there; \
             c -> c is a cycle; x -> z -> y -> x is a cycle"
        );
    }

    #[test]
    fn the_cycle_shown_is_a_short_one() {
        assert_eq!(sorted("a<b,d b<c c<a d<a").unwrap_err(), "a -> d -> a is a cycle");
    }

    #[test]
    fn ten_thousand_nodes_of_width_one_hundred_and_a_chain_as_long_are_sorted() {
        let names: Vec<String> = (0..10_000).map(|at| format!("{at:05}")).collect();
        let layered: Vec<Node<'_>> = (0..10_000)
            .map(|at| {
                let layer = at / 100 * 100;
                Node::new(&names[at], names[layer.saturating_sub(100)..layer].iter().map(String::as_str))
            })
            .collect();
        assert_eq!(classes(&layered).unwrap().forward().count(), 100);
        let ring: Vec<Node<'_>> =
            (0..10_000).map(|at| Node::new(&names[at], [names[(at + 1) % 10_000].as_str()])).collect();
        assert_eq!(classes(&ring).unwrap_err().cycles[0].len(), 10_000);
        assert_eq!(classes(&ring[..9_999]).unwrap_err().unknown.len(), 1);
    }

    /// A node is free when all it depends on is done: the definition, in the dullest way.
    fn naive(edges: &BTreeSet<(usize, usize)>, size: usize) -> Option<Vec<BTreeSet<usize>>> {
        let (mut done, mut classes) = (BTreeSet::new(), Vec::new());
        while done.len() < size {
            let free = |at: &usize| {
                !done.contains(at) && edges.iter().all(|(node, before)| node != at || done.contains(before))
            };
            let class: BTreeSet<usize> = (0..size).filter(free).collect();
            if class.is_empty() {
                return None;
            }
            done.extend(class.iter().copied());
            classes.push(class);
        }
        Some(classes)
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_definition(pairs in prop::collection::btree_set((0..8_usize, 0..8_usize), 0..14)) {
            let names: Vec<String> = (0..8).map(|at| at.to_string()).collect();
            let before = |at: usize| pairs.iter().filter(move |(node, _)| *node == at).map(|(_, other)| names[*other].as_str());
            let nodes: Vec<Node<'_>> = (0..8).map(|at| Node::new(&names[at], before(at))).collect();
            match (classes(&nodes), naive(&pairs, 8)) {
                (Ok(found), Some(expected)) => {
                    let found: Vec<BTreeSet<usize>> =
                        found.forward().map(|class| class.iter().map(|name| name.parse().unwrap()).collect()).collect();
                    prop_assert_eq!(found, expected);
                }
                (Err(problems), None) => {
                    prop_assert!(!problems.cycles.is_empty());
                    for cycle in &problems.cycles {
                        let next = cycle.iter().cycle().skip(1);
                        for (name, before) in cycle.iter().zip(next) {
                            prop_assert!(pairs.contains(&(name.parse().unwrap(), before.parse().unwrap())), "{:?}", cycle);
                        }
                        prop_assert_eq!(cycle.iter().collect::<BTreeSet<_>>().len(), cycle.len());
                    }
                }
                (found, expected) => prop_assert!(false, "{found:?} but {expected:?}"),
            }
        }
    }
}
