//! Is every public item used?
//!
//! The compiler says so of private items alone. Here names are compared: a `pub` function, method, type, constant or trait
//! of a library is dead if no code that can see it mentions its name. Its own definition, `use` lines, the heads of its
//! `impl` blocks, comments and tests do not count. Methods of one name hide each other, so that a finding is right and the
//! absence of one proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::tokens::{Token, tokens};
use crate::{Finding, Package, Tree, Use};

const WHY: &str =
    "what nothing uses is still read, compiled and kept working: delete it, or make it private to its tests";

/// Code that exists for tests, of this and other crates: there a test of another file counts as a use.
const FIXTURES: &[&str] = &["/fake", "/testing", "dev/sim/"];

/// Public for tests of other files alone, and so not dead; each with the file that defines it.
const FOR_TESTS: &[(&str, &str)] = &[
    ("local/apiserver/src/env.rs", "set_now"),
    ("crates/engine/src/engine.rs", "is_leading"),
    ("crates/engine/src/engine.rs", "resync"),
    ("crates/machines/src/cache.rs", "without"),
];

/// Public items of libraries that no code uses.
pub fn unused_items(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let is_known = |item: &Item<'_>| FOR_TESTS.contains(&(item.path, item.name));
    let dead = dead_items(tree, packages).into_iter().filter(|item| !is_known(item));
    dead.map(|Item { path, line, name, .. }| {
        Finding::new(format!("{path}:{line}"), format!("nothing uses `{name}`"), WHY)
    })
    .collect()
}

fn dead_items<'a>(tree: &'a Tree, packages: &[Package]) -> Vec<Item<'a>> {
    let files: Vec<File<'_>> = tree.rust().map(|(path, text)| File::read(path, text)).collect();
    let test_modules: Vec<String> = files.iter().flat_map(File::test_modules).collect();
    let mut all = Names::default();
    for file in &files {
        let is_test = file.is_test(&test_modules);
        if !is_test {
            all.read(file.path, &file.code);
        }
        for token in file.tests.iter().chain(file.code.iter().filter(|_| is_test)) {
            all.in_tests.entry(token.text).or_default().insert(file.path);
        }
    }
    // The rules of tidy are called by their own tests.
    let in_library = |item: &Item<'_>| {
        room(item.path) != "tidy" && tree.has(&format!("{}/src/lib.rs", directory(item.path)))
    };
    let defined = std::mem::take(&mut all.defined).into_iter();
    defined.filter(|item| in_library(item) && !all.uses(item, packages)).collect()
}

/// The directory of the crate that a file is of: `<group>/<name>`.
fn directory(path: &str) -> String {
    path.split('/').take(2).collect::<Vec<_>>().join("/")
}

/// The crate that a file is of: `<group>/<name>/…`.
fn room(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// Whether code of crate `user` can see items of crate `owner`.
fn sees(packages: &[Package], user: &str, owner: &str) -> bool {
    let depends = |package: &Package| {
        let mut direct = package.dependencies.iter().filter(|dependency| dependency.for_what != Use::Dev);
        direct.any(|dependency| {
            let other = packages.iter().find(|other| other.name == dependency.name);
            other.is_some_and(|other| sees(packages, other.room(), owner))
        })
    };
    user == owner || packages.iter().any(|package| package.room() == user && depends(package))
}

/// Every public item, and where names occur.
#[derive(Debug, Default)]
struct Names<'a> {
    defined: Vec<Item<'a>>,
    /// By name, the crates that have it after a dot, as a call, or after `::`.
    as_method: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// By name, the crates that have it after `::`, or import it and have it.
    as_item: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// By file, names without a path that it does not import: they can only mean what the file defines itself.
    as_own: BTreeSet<(&'a str, &'a str)>,
    /// By name, the files whose tests have it.
    in_tests: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

/// A public item.
#[derive(Debug)]
struct Item<'a> {
    path: &'a str,
    line: usize,
    name: &'a str,
    is_method: bool,
}

const DEFINES: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "mod"];

impl<'a> Names<'a> {
    fn uses(&self, item: &Item<'a>, packages: &[Package]) -> bool {
        let names = if item.is_method { &self.as_method } else { &self.as_item };
        let can_see = |rooms: &BTreeSet<&str>| rooms.iter().any(|user| sees(packages, user, room(item.path)));
        let is_fixture = FIXTURES.iter().any(|part| item.path.contains(part));
        let elsewhere = |files: &BTreeSet<&str>| files.iter().any(|file| *file != item.path);
        names.get(item.name).is_some_and(can_see)
            || !item.is_method && self.as_own.contains(&(item.path, item.name))
            || is_fixture && self.in_tests.get(item.name).is_some_and(elsewhere)
    }

    /// Takes the items and uses of one file.
    fn read(&mut self, path: &'a str, code: &[Token<'a>]) {
        let text = |at: Option<usize>| at.and_then(|at| code.get(at)).map_or("", |token| token.text);
        let (imported, has_glob) = imports(code);
        let (mut scope, mut in_use, mut derives_resource) = (Scope::default(), false, false);
        for (at, token) in code.iter().enumerate() {
            let (name, before, after) = (token.text, text(at.checked_sub(1)), text(Some(at + 1)));
            scope.enter(code, at);
            in_use = is_in_use(in_use, name, before);
            derives_resource |= name == "CustomResource" && token.in_attribute;
            if !token.is_name() {
                continue;
            }
            if DEFINES.contains(&before) && !token.in_attribute {
                let mut modifiers =
                    code.get(..at - 1).unwrap_or_default().iter().rev().map(|token| token.text);
                let is_public = modifiers.find(|word| !["const", "async"].contains(word)) == Some("pub");
                // The derive makes the kind of it, and nothing need name it.
                let is_resource = before == "struct" && std::mem::take(&mut derives_resource);
                if is_public && before != "mod" && !is_resource && !DEFINES.contains(&name) {
                    let is_method = before == "fn" && scope.in_impl();
                    self.defined.push(Item { path, line: token.line, name, is_method });
                }
                continue;
            }
            // Importing is no use, unless it gives another name.
            if in_use && after != "as" || scope.is_self_type(at) {
                continue;
            }
            let is_path = before == "::" || token.is_quoted || in_use;
            if is_path || before == "." && ["(", "::"].contains(&after) {
                self.as_method.entry(name).or_default().insert(room(path));
            }
            // After a dot it is a field or a method, before a colon a field or a binding.
            if before == "." || after == ":" {
                continue;
            }
            if is_path || has_glob || imported.contains(name) {
                self.as_item.entry(name).or_default().insert(room(path));
            } else {
                self.as_own.insert((path, name));
            }
        }
    }
}

/// The names in a file's `use` lines, and whether there is a `*` among them.
fn imports<'a>(code: &[Token<'a>]) -> (BTreeSet<&'a str>, bool) {
    let (mut names, mut in_use, mut before) = (BTreeSet::new(), false, "");
    for token in code {
        in_use = is_in_use(in_use, token.text, before);
        names.extend(in_use.then_some(token.text));
        before = token.text;
    }
    let has_glob = names.contains("*");
    (names, has_glob)
}

/// Whether a token is part of a `use` line, given whether the one before was.
fn is_in_use(was: bool, token: &str, before: &str) -> bool {
    (was || token == "use" && starts_an_item(before)) && token != ";"
}

/// Whether an item may begin after this token.
fn starts_an_item(before: &str) -> bool {
    matches!(before, "" | "}" | ";" | "]" | "{" | "pub" | ")")
}

/// Which braces we are in.
#[derive(Debug, Default)]
struct Scope {
    /// For each open brace, whether it is that of an `impl`.
    open: Vec<bool>,
    /// In the head of an `impl`: where its brace is, and where the name of the type that it is for.
    head: Option<(usize, usize)>,
}

impl Scope {
    fn enter(&mut self, code: &[Token<'_>], at: usize) {
        let text = |at: usize| code.get(at).map_or("", |token| token.text);
        let word = text(at);
        if word == "impl" && starts_an_item(at.checked_sub(1).map_or("", text)) {
            self.head = Some(impl_head(code, at));
        }
        match word {
            "{" => self.open.push(self.head.take_if(|(brace, _)| *brace == at).is_some()),
            "}" => drop(self.open.pop()),
            _ => {}
        }
    }

    fn in_impl(&self) -> bool {
        self.open.last() == Some(&true)
    }

    fn is_self_type(&self, at: usize) -> bool {
        self.head.is_some_and(|(_, name)| name == at)
    }
}

/// Where the brace of an `impl` is, and where the name of its type: the last one outside of angle brackets, before `where`.
fn impl_head(code: &[Token<'_>], start: usize) -> (usize, usize) {
    let (mut angles, mut name, mut is_named) = (0_i32, start, true);
    for (at, token) in code.iter().enumerate().skip(start + 1) {
        match token.text {
            "{" => return (at, name),
            "<" => angles += 1,
            ">" => angles -= 1,
            "where" => is_named = false,
            _ if angles == 0 && is_named && token.is_name() => name = at,
            _ => {}
        }
    }
    (code.len(), name)
}

/// A file: what is built into libraries and executables, and what only into tests.
#[derive(Debug)]
struct File<'a> {
    path: &'a str,
    code: Vec<Token<'a>>,
    tests: Vec<Token<'a>>,
}

impl<'a> File<'a> {
    fn read(path: &'a str, text: &'a str) -> Self {
        let (mut code, mut tests) = (Vec::new(), Vec::new());
        let all = tokens(text);
        let mut rest = all.as_slice();
        while let Some((token, after)) = rest.split_first() {
            let words = rest.iter().take(6).map(|token| token.text);
            if words.eq(["#[", "cfg", "(", "test", ")", "]"]) {
                let (item, after) = rest.split_at(item_length(rest));
                tests.extend(item);
                rest = after;
            } else {
                code.push(*token);
                rest = after;
            }
        }
        Self { path, code, tests }
    }

    /// The modules that this file declares for tests alone, as paths without `.rs`.
    fn test_modules(&self) -> Vec<String> {
        let (directory, file) = self.path.rsplit_once('/').unwrap_or(("", self.path));
        let home = match file.trim_end_matches(".rs") {
            "lib" | "main" | "mod" => directory.to_owned(),
            stem => format!("{directory}/{stem}"),
        };
        let declared = self.tests.windows(3).filter_map(|three| match three {
            [before, name, end] if before.text == "mod" && end.text == ";" => Some(name.text),
            _ => None,
        });
        declared.map(|name| format!("{home}/{name}")).collect()
    }

    fn is_test(&self, modules: &[String]) -> bool {
        let below = |module: &String| {
            self.path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        self.path.split('/').any(|part| matches!(part, "tests" | "examples")) || modules.iter().any(below)
    }
}

/// How many tokens there are to the end of an item, attributes first: its `;`, or the brace that closes its block.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| !token.in_attribute) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
        // The end of what the item is in.
        if depth < 0 {
            return at;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::package;
    use crate::testing::{assert_clean, assert_found, real};

    #[test]
    fn every_public_item_is_used() {
        let (tree, packages) = real();
        assert_clean(&unused_items(&tree, &packages));
        let dead = dead_items(&tree, &packages);
        for known in FOR_TESTS.iter() {
            let is_dead = dead.iter().any(|item| (item.path, item.name) == *known);
            assert!(is_dead, "{known:?} is used, or gone: it needs no exception any more");
        }
    }

    /// The lines that are found in a library `a` of this text, beside another crate that uses it.
    #[track_caller]
    fn check(library: &str, other: &str, expected: &[&str]) {
        let tree = Tree::of([("crates/a/src/lib.rs", library), ("crates/b/src/main.rs", other)]);
        let packages = [package("a", &[]), package("b", &["pawl-a"]), package("c", &[])];
        assert_found(&unused_items(&tree, &packages), expected);
    }

    #[test]
    fn an_item_that_only_its_definition_and_use_lines_name_is_found() {
        let library = "pub struct Dead;\npub const OLD: u8 = 1;\npub fn gone() {}\npub(crate) fn left_to_the_compiler() {}\n";
        check(
            library,
            "use a::{Dead, gone};\n// gone() is a word here\n",
            &["crates/a/src/lib.rs:1", "crates/a/src/lib.rs:2", "crates/a/src/lib.rs:3"],
        );
        check(library, "use a::Dead as D; fn main() { a::gone(); print(\"{OLD:?}\") }\n", &[]);
        check(library, "#[serde(default = \"a::gone\", with = \"OLD\")] struct S(a::Dead);\n", &[]);
    }

    #[test]
    fn its_own_impls_are_no_use_of_a_type() {
        let library = "pub struct Dead<T>(T);\nimpl<T> Dead<T> { fn own(&self) {} }\nimpl<T> fmt::Debug for Dead<T> {}\n";
        check(library, "", &["crates/a/src/lib.rs:1"]);
        check(library, "impl From<a::Dead<u8>> for u8 {}\n", &[]);
    }

    #[test]
    fn a_method_is_used_by_a_call_and_a_function_by_its_name() {
        let library = "pub struct A;\nimpl A {\n    pub fn size(&self) {}\n}\npub fn sort() {}\n";
        check(
            library,
            "fn main() { let size = a::A; it.size; v.sort(); let sort = S { sort: 1 }; sort }\n",
            &["crates/a/src/lib.rs:3", "crates/a/src/lib.rs:5"],
        );
        check(library, "use a::sort; fn main() { a::A.size(); list.map(sort) }\n", &[]);
    }

    #[test]
    fn what_only_tests_use_is_found_unless_it_is_a_fixture() {
        let (item, test) =
            ("pub fn helper() {}\n", "#[cfg(test)]\nmod tests {\n    fn a() { helper(); }\n}\n");
        let own = format!("{item}{test}");
        let tree = Tree::of([
            ("crates/a/src/lib.rs", "pub mod fake;\n#[cfg(test)]\nmod more;\nmod b;\n"),
            ("crates/a/src/b.rs", &own),
            ("crates/a/src/more.rs", "fn a() { helper(); }\n"),
            ("crates/a/tests/it/main.rs", "fn a() { helper(); unused(); }\n"),
            (
                "crates/a/src/fake.rs",
                "pub fn unused() {}\npub fn alone() {}\n#[cfg(test)]\nfn b() { alone() }\n",
            ),
        ]);
        assert_found(&unused_items(&tree, &[]), &["crates/a/src/b.rs:1", "crates/a/src/fake.rs:2"]);
    }

    #[test]
    fn a_crate_that_cannot_see_an_item_does_not_use_it() {
        let packages =
            [package("a", &[]), package("b", &["pawl-a"]), package("c", &["pawl-b"]), package("d", &[])];
        let found = |user: &str| {
            let user = format!("crates/{user}/src/main.rs");
            let tree = Tree::of([
                ("crates/a/src/lib.rs", "pub fn tried() {}\n"),
                (&user, "fn main() { a::tried() }\n"),
            ]);
            unused_items(&tree, &packages).len()
        };
        assert_eq!(["b", "c", "d"].map(found), [0, 0, 1]);
    }

    #[test]
    fn a_kind_is_used_by_its_derive_and_an_executable_has_no_public_items() {
        let library = "#[derive(CustomResource)]\npub struct Spec {}\npub struct Other {}\n";
        check(library, "pub fn whatever() {}\n", &["crates/a/src/lib.rs:3"]);
    }
}
