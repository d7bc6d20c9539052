//! The completed or failed indexes of an Indexed Job, as its status writes them: `0,2-5,7`.
//!
//! Kept as ranges, because a status that says `0-2000000000` must not cost memory.

use std::fmt;

/// Ranges (first, last), sorted, neither overlapping nor touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads a status; what is not an index below `completions` is left out, as Kubernetes does.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut ranges: Vec<(i32, i32)> = text
            .split(',')
            .filter_map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let (first, last) = (first.parse::<i32>().ok()?, last.parse::<i32>().ok()?);
                (0 <= first && first <= last && first < completions)
                    .then(|| (first, last.min(completions.saturating_sub(1))))
            })
            .collect();
        ranges.sort_unstable();
        let mut indexes = Self::default();
        for (first, last) in ranges {
            match indexes.0.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => indexes.0.push((first, last)),
            }
        }
        indexes
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        let range = after.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|(_, last)| index <= *last)
    }

    pub(super) fn insert_all(&mut self, added: impl IntoIterator<Item = i32>, completions: i32) {
        let added: Vec<String> = added.into_iter().map(|index| index.to_string()).collect();
        if !added.is_empty() {
            *self = Self::parse(&format!("{self},{}", added.join(",")), completions);
        }
    }

    pub(super) fn len(&self) -> i32 {
        self.0.iter().fold(0, |sum, (first, last)| sum.saturating_add(last - first).saturating_add(1))
    }

    /// How many are in both.
    pub(super) fn shared_with(&self, other: &Self) -> i32 {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut shared = 0_i32;
        while let (Some((first, last)), Some((other_first, other_last))) = (ours.peek(), theirs.peek()) {
            let (from, to) = (first.max(other_first), last.min(other_last));
            if from <= to {
                shared = shared.saturating_add(to - from).saturating_add(1);
            }
            if last < other_last {
                ours.next();
            } else {
                theirs.next();
            }
        }
        shared
    }

    /// The indexes below `completions` that are not in here, from the smallest.
    pub(super) fn missing(&self, completions: i32) -> impl Iterator<Item = i32> + '_ {
        let starts = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain(std::iter::once(completions));
        starts.zip(ends).flat_map(|(start, end)| start..end)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_written_as_kubernetes_writes_them() {
        for (given, written) in
            [("0,1", "0,1"), ("2,0,1", "0-2"), ("5-3,x,-1,7", "7"), ("", ""), ("0-99,3", "0-9")]
        {
            assert_eq!(Indexes::parse(given, 10).to_string(), written);
        }
        assert_eq!(Indexes::parse("0-2147483647", i32::MAX).len(), i32::MAX);
    }

    proptest! {
        #[test]
        fn it_is_the_set_it_claims_to_be(added in prop::collection::vec(-1..25_i32, 0..20), more in prop::collection::vec(0..20_i32, 0..9)) {
            let text = added.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
            let mut indexes = Indexes::parse(&text, 20);
            indexes.insert_all(more.clone(), 20);
            let model: BTreeSet<i32> = added.into_iter().chain(more).filter(|index| (0..20).contains(index)).collect();
            prop_assert_eq!(usize::try_from(indexes.len()).unwrap(), model.len());
            prop_assert!((-1..25).all(|index| indexes.contains(index) == model.contains(&index)));
            prop_assert_eq!(Indexes::parse(&indexes.to_string(), 20), indexes.clone());
            let other = Indexes::parse("3-6,9,15-30", 20);
            let shared = (0..20).filter(|index| model.contains(index) && other.contains(*index)).count();
            prop_assert_eq!(usize::try_from(indexes.shared_with(&other)).unwrap(), shared);
            prop_assert!(indexes.missing(20).eq((0..20).filter(|index| !model.contains(index))));
        }
    }
}
