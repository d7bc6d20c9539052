//! How are an object's many short texts kept?
//!
//! ```text
//! text:  configmap-7team-abe8e5f1…42appshopparthttps://…
//! ends:  11         17     53 55│ 58  62 66   74 …
//!        name       namespace … │ key value …  labels, then annotations, each in the order of its keys
//! ```
//! A cache holds an object for as long as the cluster does, and most are never looked into. A text and a map of their own
//! for each word took several times what the words do.

use std::collections::BTreeMap;

/// An object's names, labels and annotations, one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    text: Box<str>,
    /// Where each word ends.
    ends: Box<[u32]>,
    labels: u16,
    namespaced: bool,
}

/// Which words come first.
const NAME: usize = 0;
const NAMESPACE: usize = 1;
const UID: usize = 2;
const VERSION: usize = 3;
const LABELS: usize = 4;

/// Words as they came.
#[derive(Debug, Default)]
pub(super) struct Loose {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Words {
    /// `None` for more words than an API server takes: it refuses objects of a hundredth of what fits here.
    pub(super) fn pack(loose: &Loose) -> Option<Self> {
        let Loose { name, namespace, uid, version, labels, annotations } = loose;
        let first = [name.as_str(), namespace.as_deref().unwrap_or_default(), uid, version];
        let pairs = labels.iter().chain(annotations).flat_map(|(key, value)| [key.as_str(), value]);
        let words = || first.into_iter().chain(pairs.clone());
        let mut text = String::with_capacity(words().map(str::len).sum());
        let mut ends = Vec::with_capacity(LABELS + 2 * (labels.len() + annotations.len()));
        for word in words() {
            text.push_str(word);
            ends.push(u32::try_from(text.len()).ok()?);
        }
        Some(Self {
            text: text.into(),
            ends: ends.into(),
            labels: u16::try_from(labels.len()).ok()?,
            namespaced: namespace.is_some(),
        })
    }

    /// What was packed.
    pub(super) fn loose(&self) -> Loose {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Loose {
            name: self.name().to_owned(),
            namespace: self.namespace().map(str::to_owned),
            uid: self.uid().to_owned(),
            version: self.version().to_owned(),
            labels: self.labels().map(owned).collect(),
            annotations: self.annotations().map(owned).collect(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.word(NAME)
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespaced.then(|| self.word(NAMESPACE))
    }

    pub(super) fn uid(&self) -> &str {
        self.word(UID)
    }

    pub(super) fn version(&self) -> &str {
        self.word(VERSION)
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs(LABELS, self.after_labels())
    }

    pub(super) fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs(self.after_labels(), self.ends.len())
    }

    fn after_labels(&self) -> usize {
        LABELS + 2 * usize::from(self.labels)
    }

    fn pairs(&self, from: usize, to: usize) -> impl Iterator<Item = (&str, &str)> {
        (from..to).step_by(2).map(|at| (self.word(at), self.word(at + 1)))
    }

    fn word(&self, at: usize) -> &str {
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.text.get(start..end(at)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_packed_is_what_comes_out() {
        for namespace in [None, Some(String::new()), Some("ns".to_owned())] {
            for (labels, annotations) in [(0, 0), (2, 0), (0, 1), (2, 1)] {
                let all = [("a/b", ""), ("ü", "y")];
                let loose = || Loose {
                    name: "n".into(),
                    namespace: namespace.clone(),
                    uid: String::new(),
                    version: "42".into(),
                    labels: map(&all[..labels]),
                    annotations: map(&all[..annotations]),
                };
                let words = Words::pack(&loose()).unwrap();
                assert_eq!((words.name(), words.namespace()), ("n", namespace.as_deref()));
                assert_eq!((words.uid(), words.version()), ("", "42"));
                assert!(words.labels().eq(all[..labels].iter().copied()));
                assert!(words.annotations().eq(all[..annotations].iter().copied()));
                assert_eq!(Words::pack(&words.loose()).unwrap(), words);
            }
        }
    }

    #[test]
    fn nothing_at_all_is_empty_words() {
        let words = Words::default();
        assert_eq!((words.name(), words.namespace(), words.labels().count()), ("", None, 0));
    }
}
