//! How large may each ReplicaSet of a Deployment be? Kubernetes' arithmetic, and nothing else.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::DeploymentStrategy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{MAX, Set};

/// How far a rollout may stray from the wanted number of Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// All old Pods end before the first new one begins.
    pub(super) recreate: bool,
    /// Pods above the wanted number.
    pub(super) surge: i32,
    /// Pods below it that are not available.
    pub(super) unavailable: i32,
}

impl Limits {
    pub(super) fn of(strategy: Option<&DeploymentStrategy>, replicas: i32) -> Self {
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
            return Self { recreate: true, surge: 0, unavailable: 0 };
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".to_owned());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
        let surge = share(surge, replicas, Round::Up);
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
        // With neither, nothing could ever move.
        let unavailable = match share(unavailable, replicas, Round::Down) {
            0 if surge == 0 => 1,
            some => some.min(replicas),
        };
        Self { recreate: false, surge, unavailable }
    }
}

/// Which way a share that is no whole number goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Round {
    Up,
    Down,
}

/// A number, or a share of another.
pub(in crate::cluster) fn share(amount: &IntOrString, of: i32, round: Round) -> i32 {
    match amount {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse::<u32>().ok());
            let product = i64::from(percent.unwrap_or_default()).saturating_mul(i64::from(of.max(0)));
            let rest = if round == Round::Up { 99 } else { 0 };
            i32::try_from(product.saturating_add(rest) / 100).unwrap_or(i32::MAX)
        }
    }
}

/// How large the new set may be when it has `now` and all sets together have `total`.
pub(super) fn new_size(now: i32, total: i32, replicas: i32, limits: Limits) -> i32 {
    if now > replicas {
        return replicas;
    }
    let room = replicas.saturating_add(limits.surge).saturating_sub(total).max(0);
    now.saturating_add(room.min(replicas.saturating_sub(now)))
}

/// How large each old set may still be: first those Pods go that are of no use anyway, then others as far as enough
/// are available.
pub(super) fn shrink_old(new: &Set, old: &[&Set], replicas: i32, limits: Limits) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(|set| set.wanted()).collect();
    let least = replicas.saturating_sub(limits.unavailable);
    let total = sizes.iter().fold(new.wanted(), |sum, size| sum.saturating_add(*size));
    let not_yet = new.wanted().saturating_sub(new.available()).max(0);
    let most = total.saturating_sub(least).saturating_sub(not_yet);
    let mut left = most;
    for (set, size) in old.iter().zip(&mut sizes) {
        let useless = size.saturating_sub(set.available()).clamp(0, left.max(0));
        *size = size.saturating_sub(useless);
        left = left.saturating_sub(useless);
    }
    // A set that was told to shrink may still report Pods that it no longer wants.
    let available = old
        .iter()
        .zip(&sizes)
        .fold(new.available(), |sum, (set, size)| sum.saturating_add(set.available().min(*size)));
    let mut spare = if most > 0 { available.saturating_sub(least) } else { 0 };
    for size in &mut sizes {
        let gone = (*size).min(spare.max(0));
        *size = size.saturating_sub(gone);
        spare = spare.saturating_sub(gone);
    }
    sizes
}

/// Spreads a new number of replicas over a rollout that is under way, each set by its share.
pub(super) fn proportional<'a>(sets: &[&'a Set], replicas: i32, limits: Limits) -> Vec<(&'a Set, i32)> {
    let total = sets.iter().fold(0_i32, |sum, set| sum.saturating_add(set.wanted()));
    let allowed = if replicas > 0 { replicas.saturating_add(limits.surge) } else { 0 };
    let to_add = allowed.saturating_sub(total);
    let mut sets = sets.to_vec();
    // The larger first; of equal ones the newer grow first and the older shrink first.
    sets.sort_by_key(|set| (Reverse(set.wanted()), set.object.meta().creation_timestamp.clone()));
    if to_add > 0 {
        sets.sort_by_key(|set| {
            (Reverse(set.wanted()), Reverse(set.object.meta().creation_timestamp.clone()))
        });
    }
    let mut added = 0_i32;
    let mut sized: Vec<(&Set, i32)> = Vec::with_capacity(sets.len());
    for set in sets {
        let left = to_add.saturating_sub(added);
        let share = fraction(set, replicas, allowed, total);
        let change = if to_add > 0 { share.clamp(0, left) } else { share.clamp(left, 0) };
        added = added.saturating_add(change);
        sized.push((set, set.wanted().saturating_add(change)));
    }
    if let Some((_, first)) = sized.first_mut() {
        *first = first.saturating_add(to_add.saturating_sub(added)).max(0);
    }
    sized
}

/// By how much a set changes when the whole goes from what it was sized for to `allowed`.
fn fraction(set: &Set, replicas: i32, allowed: i32, total: i32) -> i32 {
    if replicas == 0 {
        return set.wanted().saturating_neg();
    }
    let before = set.number(MAX).filter(|max| *max > 0).unwrap_or_else(|| i64::from(total.max(1)));
    let product = i64::from(set.wanted()).saturating_mul(i64::from(allowed));
    // Rounded half up, as sizes are not negative.
    let size = product.saturating_mul(2).saturating_add(before).checked_div(before.saturating_mul(2));
    i32::try_from(size.unwrap_or_default()).unwrap_or(i32::MAX).saturating_sub(set.wanted())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(surge: &str, unavailable: &str, replicas: i32) -> (i32, i32) {
        let text = |text: &str| match text.parse() {
            Ok(number) => IntOrString::Int(number),
            Err(_) => IntOrString::String(text.to_owned()),
        };
        let rolling = k8s_openapi::api::apps::v1::RollingUpdateDeployment {
            max_surge: Some(text(surge)),
            max_unavailable: Some(text(unavailable)),
        };
        let strategy = DeploymentStrategy { rolling_update: Some(rolling), type_: None };
        let Limits { surge, unavailable, .. } = Limits::of(Some(&strategy), replicas);
        (surge, unavailable)
    }

    #[test]
    fn shares_go_up_for_surge_and_down_for_unavailable_and_never_both_to_nothing() {
        assert_eq!(limits("25%", "25%", 10), (3, 2));
        assert_eq!(limits("25%", "25%", 1), (1, 0));
        assert_eq!(limits("0", "0", 4), (0, 1));
        assert_eq!(limits("0%", "10%", 4), (0, 1));
        assert_eq!(limits("2", "9", 4), (2, 4));
        assert_eq!(limits("nonsense", "1", 4), (0, 1));
    }

    #[test]
    fn the_new_set_grows_into_the_room_that_there_is() {
        let limits = Limits { recreate: false, surge: 1, unavailable: 0 };
        assert_eq!(new_size(0, 3, 3, limits), 1);
        assert_eq!(new_size(1, 4, 3, limits), 1);
        assert_eq!(new_size(0, 0, 3, limits), 3);
        assert_eq!(new_size(5, 5, 3, limits), 3);
        assert_eq!(new_size(2, 9, 3, limits), 2);
    }
}
