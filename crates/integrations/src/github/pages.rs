//! What did GitHub answer last time, so that "nothing new" (304) can be understood?
//!
//! What is kept is the part of an answer that we use, not its text: a page of pull requests is 2 MB from GitHub and 30 kB
//! here.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Answers kept per Repository: branches and pull requests of a large repository are some tens of pages.
const MAX_ANSWERS: usize = 256;
/// Their size together: of 50 Repositories, 100 MB at the very worst; a usual one keeps some tens of kB.
const MAX_BYTES: usize = 2 << 20;

/// One answer, as far as we use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) etag: String,
    /// What we read of it, serialized.
    pub(crate) body: Bytes,
    /// Where the next page is.
    pub(crate) next: Option<String>,
}

/// Answers by path and query; those used least lately go first.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    answers: BTreeMap<String, (u64, Known)>,
    bytes: usize,
    uses: u64,
}

impl Pages {
    pub(crate) fn get(&mut self, path: &str) -> Option<Known> {
        self.uses += 1;
        let (used, known) = self.answers.get_mut(path)?;
        *used = self.uses;
        Some(known.clone())
    }

    pub(crate) fn keep(&mut self, path: &str, known: Known) {
        self.forget(path);
        if size(path, &known) > MAX_BYTES {
            return;
        }
        self.uses += 1;
        self.bytes += size(path, &known);
        self.answers.insert(path.to_owned(), (self.uses, known));
        while self.answers.len() > MAX_ANSWERS || self.bytes > MAX_BYTES {
            let oldest = self.answers.iter().min_by_key(|(_, (used, _))| *used).map(|(path, _)| path.clone());
            let Some(oldest) = oldest else { break };
            self.forget(&oldest);
        }
    }

    pub(crate) fn forget(&mut self, path: &str) {
        if let Some((_, known)) = self.answers.remove(path) {
            self.bytes -= size(path, &known);
        }
    }
}

fn size(path: &str, known: &Known) -> usize {
    path.len() + known.etag.len() + known.body.len() + known.next.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(bytes: usize) -> Known {
        Known { etag: "e".to_owned(), body: Bytes::from(vec![0; bytes]), next: None }
    }

    #[test]
    fn the_least_lately_used_go_first() {
        let mut pages = Pages::default();
        for n in 0..MAX_ANSWERS {
            pages.keep(&format!("/{n}"), known(1));
        }
        assert!(pages.get("/0").is_some());
        pages.keep("/new", known(1));
        assert!(pages.get("/0").is_some() && pages.get("/1").is_none() && pages.get("/new").is_some());
    }

    #[test]
    fn the_sum_of_what_is_kept_is_bounded() {
        let mut pages = Pages::default();
        pages.keep("/a", known(MAX_BYTES / 2));
        pages.keep("/b", known(MAX_BYTES / 2));
        assert!(pages.get("/a").is_none() && pages.get("/b").is_some());
        pages.keep("/huge", known(MAX_BYTES + 1));
        assert!(pages.get("/huge").is_none() && pages.get("/b").is_some());
        pages.keep("/b", known(10));
        assert_eq!(pages.bytes, size("/b", &known(10)));
    }
}
