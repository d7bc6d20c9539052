//! What Go prints is what is printed here; what Go refuses is refused here, at the same stage.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    data: Json,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    template: String,
    output: String,
    error: Option<String>,
}

const GO: Options<'static> = Options {
    limits: Limits {
        steps: MAX_STEPS,
        output_bytes: MAX_OUTPUT_BYTES,
        memory_bytes: MAX_MEMORY_BYTES,
        depth: MAX_DEPTH,
    },
    missing_key: MissingKey::Zero,
    files: None,
};

/// What was printed, and the stage that failed.
fn attempt(template: &str, data: &Json, options: &Options<'_>) -> (String, Option<TemplateError>) {
    let mut output = String::new();
    let error = Template::parse("t", template)
        .and_then(|template| template.render_into(&mut output, data, options))
        .err();
    (output, error)
}

#[test]
fn what_go_prints_is_printed() {
    let vectors: Vectors = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let mut wrong = Vec::new();
    for row in &vectors.rows {
        let (output, error) = attempt(&row.template, &vectors.data, &GO);
        let stage = error.as_ref().map(|error| match error.stage {
            Stage::Parse => "parse",
            Stage::Execute => "execute",
        });
        if output != row.output || stage != row.error.as_deref() {
            wrong.push(format!("{}\n  {output:?} {error:?}\n  {:?} {:?}", row.template, row.output, row.error));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(vectors.rows.len() >= 80);
}

fn data() -> Json {
    json!({
        "s": "web", "n": 3, "big": 1_000_000, "small": 0.000_01, "half": 0.5, "neg": -2, "t": true, "f": false,
        "nul": null, "list": ["a", "b", "c"], "nums": [3, 1, 2], "nulls": [null, "x"], "empty": [],
        "map": {"a": 1, "b": {"c": "d"}}, "emptymap": {}, "multi": "one\ntwo", "uni": "héllo"
    })
}

fn go(template: &str) -> String {
    match attempt(template, &data(), &GO) {
        (output, None) => output,
        (output, Some(error)) => format!("{output}!{error}"),
    }
}

/// Lines of `template => output`; a template and an output have no newline of their own.
fn check(lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (template, wanted) = line.split_once(" => ").unwrap();
        assert_eq!(go(template), wanted.replace("\\n", "\n"), "{template}");
    }
}

#[test]
fn values_print_as_in_go() {
    check(
        r#"
        {{ .big }} {{ .small }} {{ .half }} {{ .neg }} => 1e+06 1e-05 0.5 -2
        {{ .nulls }} {{ .emptymap }} {{ .empty }} => [<nil> x] map[] []
        {{ 123456.0 }} {{ 1234567.0 }} {{ 1e21 }} {{ 0.0001 }} {{ 100000.5 }} => 123456 1.234567e+06 1e+21 0.0001 100000.5
        {{ 1_000 }} {{ 0b101 }} {{ 0o17 }} {{ 017 }} {{ 0x_1F }} {{ -5 }} {{ +5 }} => 1000 5 15 15 31 -5 5
        {{ '\n' }} {{ '\x41' }} {{ '☺' }} {{ '\'' }} => 10 65 9786 39
        {{ "\u00e9\x41\101\t" }}| => éAA	|
        {{ 0x1p4 }} {{ .5 }} {{ 1.e2 }} => 16 0.5 100
        {{ print nil }} {{ print 1 nil "a" nil }} => <nil> 1 <nil>a<nil>
        {{ index .s 0 }} {{ slice .list 1 }} {{ slice .list }} {{ slice .list 1 2 3 }} => 119 [b c] [a b c] [b]
        "#,
    );
}

#[test]
fn formats_are_gos() {
    check(
        r##"
        {{ printf "%5d|%-5d|%05d|%+d|% d" 42 42 42 42 42 }} =>    42|42   |00042|+42| 42
        {{ printf "%x|%X|%#x|%o|%b|%c|%U|%q" 255 255 255 8 5 65 65 65 }} => ff|FF|0xff|10|101|A|U+0041|'A'
        {{ printf "%s|%10s|%-10s|%.2s|%q|%x" "abc" "abc" "abc" "abc" "a\"b" "hi" }} => abc|       abc|abc       |ab|"a\"b"|6869
        {{ printf "%f|%.2f|%8.3f|%-8.1f|%e|%g|%G" 3.14159 3.14159 3.14159 3.14159 31415.9 1e10 1e-7 }} => 3.141590|3.14|   3.142|3.1     |3.141590e+04|1e+10|1E-07
        {{ printf "%v %v %v %v" 1 1.5 "s" true }} => 1 1.5 s true
        {{ printf "%d" "x" }} {{ printf "%s" 1 }} {{ printf "%d" 1.5 }} {{ printf "%t" 1 }} => %!d(string=x) %!s(int=1) %!d(float64=1.5) %!t(int=1)
        {{ printf "%d %d" 1 }} {{ printf "%d" 1 2 }} {{ printf "%!" 1 }} {{ printf "%" }} => 1 %!d(MISSING) 1%!(EXTRA int=2) %!!(int=1) %!(NOVERB)
        {{ printf "%[2]d %[1]d" 1 2 }} {{ printf "%[3]d" 1 }} {{ printf "%*d" 5 1 }} {{ printf "%.*f" 2 3.14159 }} => 2 1 %!d(BADINDEX)     1 3.14
        {{ printf "%s" .list }} {{ printf "%q" .list }} {{ printf "%v" .map }} {{ printf "%d" .nums }} => [a b c] ["a" "b" "c"] map[a:1 b:map[c:d]] [%!d(float64=3) %!d(float64=1) %!d(float64=2)]
        {{ printf "%T %T %T %T %T %T" 1 1.5 "s" true .list .map }} => int float64 string bool []interface {} map[string]interface {}
        {{ printf "%#v %#v %#v" "s" 1 .list }} => "s" 1 []interface {}{"a", "b", "c"}
        {{ printf "%s %d %v" nil nil nil }} {{ printf "%t" true }} {{ printf "100%%" }} => %!s(<nil>) %!d(<nil>) <nil> true 100%
        {{ printf "%6.2f|%06.2f|%+.1e|%x" 3.14159 -3.14159 12345.678 -255 }} =>   3.14|-03.14|+1.2e+04|-ff
        "##,
    );
}

#[test]
fn the_language_is_gos() {
    check(
        r#"
        {{ if and .t (not .f) }}a{{ else }}b{{ end }} => a
        {{ with .nope }}a{{ else with .s }}b{{ . }}{{ else }}c{{ end }} => bweb
        {{ with .nope }}a{{ else with .nope }}b{{ else }}c{{ end }} => c
        {{ range $k, $v := .map }}{{ $k }}{{ end }}{{ range $v := .list }}{{ $v }}{{ end }} => ababc
        {{ range 0 }}x{{ else }}none{{ end }}{{ range .nope }}x{{ else }}none{{ end }} => nonenone
        {{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }} => 21
        {{ $x := 1 }}{{ range .list }}{{ $x = . }}{{ end }}{{ $x }} => c
        {{ define "a" }}<{{ . }}{{ template "b" 1 }}>{{ end }}{{ define "b" }}{{ . }}{{ end }}{{ template "a" .s }} => <web1>
        {{ define "a" }}{{ . }}{{ end }}{{ template "a" }} => <no value>
        {{ define "x" }}{{ end }}{{ define "x" }}2{{ end }}{{ template "x" }} => 2
        {{ $x := .nope }}{{ $x.foo }} {{ (.nope).foo }} => <no value> <no value>
        {{ .map.b.c }} {{ (index .map "b").c }} {{ $.map.b.c }} => d d d
        {{ "a" | printf "%s%s" "b" | len }} => 2
        {{ or 0 "" .nope "z" }} {{ and 1 0 2 }} {{ or false }} => z 0 false
        {{ not nil }} {{ not 0 }} {{ not .map }} => true true false
        {{ eq 1 nil }} {{ eq .list nil }} {{ ne 1 2 }} {{ eq 1 2 3 1 }} {{ eq .nope .nul }} => false false true true true
        {{ eq true true }} {{ eq "a" "a" }} {{ lt 1.5 2.0 }} {{ ge "b" "a" }} => true true true true
        {{ range .list }}{{ range $.nums }}{{ break }}{{ end }}{{ . }}{{ end }} => abc
        a{{- /* c */ -}} b {{/* c */}}c => ab c
        {{ 1 -}} x {{- 2 }} => 1x2
        {{ `raw{{"}}` }} {{ "}}" }} => raw{{"}} }}
        {{ html nil }} {{ html "<" 1 2 }} {{ js "a'b=\n" }} {{ urlquery "a b" "é" }} => &lt;no value&gt; &lt;1 2 a\'b\u003D\u000A a+b%C3%A9
        {{ range $i, $c := slice .list 1 }}{{ $i }}{{ $c }}{{ end }} => 0b1c
        {{ len "é" }} {{ (slice .s 1) }} => 2 eb
        {{ print (1) ("x" | len) }} => 1 1
        {{ $x := dict "a" 1 }}{{ $x.a }}{{ (dict "b" 2).b }} => 12
        {{ break_ }} => !template "t", line 1: the function "break_" is not defined
        "#,
    );
}

#[test]
fn what_go_does_not_understand_is_not_understood() {
    for template in [
        "{{", "{{ ", "{{ if .x }}", "{{ else }}", "{{ end }}", "{{ if .x }}{{ else }}{{ else }}{{ end }}",
        "{{ range .x }}{{ end", "{{ define \"x\" }}", "{{ define x }}{{ end }}", "{{ template x }}", "{{ template }}",
        "{{ block \"x\" }}{{ end }}", "{{ break }}", "{{ continue }}", "{{ range .x }}{{ define \"y\" }}{{ end }}{{ end }}",
        "{{ if .x }}{{ define \"y\" }}{{ end }}{{ end }}", "{{ $x }}", "{{ $x, $y := 1 }}", "{{ range $a, $b, $c := .x }}{{ end }}",
        "{{ (1 }}", "{{ 1) }}", "{{ () }}", "{{ \"a }}", "{{ 'a }}", "{{ 'ab' }}", "{{ `a }}", "{{ 1a }}", "{{ 0x }}",
        "{{ 08 }}", "{{ 1__0 }}", "{{ 1_ }}", "{{ 99999999999999999999 }}", "{{ \"\\q\" }}", "{{ .a\"b\" }}", "{{ 1.x }}",
        "{{ true.x }}", "{{ nil.x }}", "{{ \"a\".x }}", "{{ .x | 1 }}", "{{ .x | \"a\" }}", "{{ .x | . }}", "{{ | len }}",
        "{{ .x || .y }}", "{{ a := 1 }}", "{{ $x := }}", "{{ : }}", "{{ # }}", "{{ é? }}", "{{/* x }}", "{{/* x */ 1 }}", "{{ /* x */ }}",
        "{{ if .x }}{{ else if }}{{ end }}", "{{ with .x }}{{ else if .y }}{{ end }}", "{{ if .x }}{{ else with .y }}{{ end }}",
        "{{ end }}x", "{{ nosuch }}", "{{ define \"a\" }}1{{ end }}{{ define \"a\" }}2{{ end }}", "{{ . | }}|{{ ) }}",
        "{{ range .x }}{{ block \"y\" . }}{{ break }}{{ end }}{{ end }}", "{{ if .x }}{{ end }}{{ end }}", "{{ 1+2i }}",
    ] {
        let (output, error) = attempt(template, &data(), &GO);
        let stage = error.as_ref().map(|error| error.stage);
        assert_eq!((output.as_str(), stage), ("", Some(Stage::Parse)), "{template}: {error:?}");
    }
}

#[test]
fn what_go_cannot_do_is_not_done() {
    for template in [
        "{{ .list.x }}", "{{ .s.x }}", "{{ .n.x }}", "{{ .nope.x }}", "{{ range .nulls }}{{ .x }}{{ end }}", "{{ nil }}",
        "{{ \"a\" 1 }}", "{{ .s 1 }}", "{{ 1 | .s }}", "{{ $x := 1 }}{{ 2 | $x }}", "{{ (1) 2 }}", "{{ range .s }}{{ end }}",
        "{{ range .n }}{{ end }}", "{{ range true }}{{ end }}", "{{ range $a, $b := 3 }}{{ end }}", "{{ index .list 3 }}",
        "{{ index .list -1 }}", "{{ index .list \"a\" }}", "{{ index .list 1.0 }}", "{{ index .map 1 }}", "{{ index nil 1 }}",
        "{{ index .map nil }}", "{{ index .nope 1 }}", "{{ index .map \"zz\" \"y\" }}", "{{ index 1 1 }}", "{{ slice .s 2 1 }}",
        "{{ slice .s 0 9 }}", "{{ slice .s 0 1 2 }}", "{{ slice .map }}", "{{ slice .list 0 1 2 3 }}", "{{ len nil }}", "{{ len 1 }}",
        "{{ len .nope }}", "{{ eq 1 1.0 }}", "{{ eq 1 \"1\" }}", "{{ eq .list .map }}", "{{ eq .map .map }}", "{{ eq 1 }}", "{{ eq }}",
        "{{ ne 1 2 3 }}", "{{ lt true false }}", "{{ lt nil nil }}", "{{ lt .list .list }}", "{{ not }}", "{{ not 1 2 }}",
        "{{ template \"nope\" }}", "{{ call nil }}", "{{ call .s }}", "{{ printf }}", "{{ printf 1 }}", "{{ printf nil }}",
        "{{ $x = 1 }}", "{{ 9223372036854775808 }}", "{{ if .t }}{{ $y := 1 }}{{ else }}{{ end }}{{ len .t }}",
    ] {
        let (_, error) = attempt(template, &data(), &GO);
        assert_eq!(error.as_ref().map(|error| error.stage), Some(Stage::Execute), "{template}");
    }
}

#[test]
fn sprigs_texts_are_there() {
    check(
        r##"
        {{ "  a " | trim }}|{{ trimAll "$" "$5$" }}|{{ trimPrefix "a" "ab" }}|{{ trimSuffix "b" "ab" }} => a|5|b|a
        {{ upper "a" }}{{ lower "B" }} {{ title "hello world" }} {{ untitle "Hello World" }} => Ab Hello World hello world
        {{ repeat 3 "ab" }} {{ substr 1 3 "hello" }} {{ trunc 3 "hello" }} {{ trunc -2 "hello" }} {{ abbrev 5 "hello world" }} => ababab el hel lo he...
        {{ contains "b" "abc" }} {{ hasPrefix "a" "abc" }} {{ hasSuffix "c" "abc" }} {{ nospace "a b c" }} => true true true abc
        {{ quote "a\"b" 1 nil }} {{ squote "a" }} {{ cat "a" 1 nil "b" }} => "a\"b" "1" 'a' a 1 b
        {{ indent 2 .multi }}|{{ nindent 2 .multi }} =>   one\n  two|\n  one\n  two
        {{ replace " " "-" "a b c" }} {{ plural "one" "many" 1 }} {{ plural "one" "many" 2 }} => a-b-c one many
        {{ snakecase "FirstName" }} {{ camelcase "http_server" }} {{ kebabcase "FirstName" }} {{ swapcase "aB" }} {{ initials "First Try" }} => first_name HttpServer first-name Ab FT
        {{ join "-" .list }} {{ join "," (list 1 2) }} {{ splitList "," "a,b" }} {{ (split "," "a,b")._1 }} {{ sortAlpha (list "b" "a") }} => a-b-c 1,2 [a b] b [a b]
        {{ toString 1 }} {{ toStrings (list 1 2) }} {{ base "/a/b.c" }} {{ dir "/a/b.c" }} {{ ext "/a/b.c" }} {{ clean "a/../b//c" }} => 1 [1 2] b.c /a .c b/c
        {{ ociRefRepo "host:5000/a/b:1.0" }} {{ ociRefVersion "host:5000/a/b:1.0" }} {{ index (parseOCIRef "a@sha256:x") 1 }} => host:5000/a/b 1.0 sha256:x
        {{ regexMatch "^a+$" "aaa" }} {{ regexFind "b+" "abbc" }} {{ regexReplaceAll "a(b)" "xab" "${1}" }} {{ regexSplit "," "a,b" -1 }} {{ regexFindAll "[0-9]" "a1b2" -1 }} => true bb xb [a b] [1 2]
        "##,
    );
}

#[test]
fn sprigs_lists_maps_and_choices_are_there() {
    check(
        r##"
        {{ first .list }} {{ last .list }} {{ rest .list }} {{ initial .list }} {{ append .list "d" }} {{ prepend .list "z" }} => a c [b c] [a b] [a b c d] [z a b c]
        {{ reverse .list }} {{ uniq (list 1 1 2) }} {{ without .list "a" }} {{ has "a" .list }} {{ compact (list 0 1 "") }} {{ concat .list .nums }} => [c b a] [1 2] [b c] true [1] [a b c 3 1 2]
        {{ until 3 }} {{ untilStep 1 7 2 }} {{ seq 3 }} {{ chunk 2 .list }} => [0 1 2] [1 3 5] 1 2 3 [[a b] [c]]
        {{ default "x" .nope }} {{ default "x" .s }} {{ .nope | default "y" }} {{ empty .nope }} {{ coalesce .nope "" "z" }} => x web y true z
        {{ ternary "a" "b" true }} {{ .f | ternary "a" "b" }} {{ all 1 0 }} {{ any 1 0 }} => a b false true
        {{ dict "a" 1 "b" 2 }} {{ keys .map }} {{ values (dict "a" 1) }} {{ hasKey .map "a" }} {{ get .map "a" }} {{ pick .map "a" }} {{ omit .map "b" }} => map[a:1 b:2] [a b] [1] true 1 map[a:1] map[a:1]
        {{ $d := dict "a" 1 }}{{ $_ := set $d "b" 2 }}{{ $d }}{{ $_ := unset $d "a" }}{{ $d }} => map[a:1 b:2]map[b:2]
        {{ merge (dict "a" 1) (dict "a" 2 "b" 3) }} {{ mergeOverwrite (dict "a" 1) (dict "a" 2) }} {{ merge (dict "m" (dict "x" 1)) (dict "m" (dict "y" 2)) }} => map[a:1 b:3] map[a:2] map[m:map[x:1 y:2]]
        {{ dig "b" "c" "none" .map }} {{ dig "b" "zz" "none" .map }} {{ pluck "a" .map (dict "a" 2) }} => d none [1 2]
        {{ $a := dict "x" (dict "y" 1) }}{{ $b := deepCopy $a }}{{ $_ := set $b.x "y" 2 }}{{ $a.x.y }}{{ $b.x.y }} => 12
        {{ kindOf .list }} {{ kindIs "map" .map }} {{ typeOf .n }} {{ kindOf nil }} {{ deepEqual .list (list "a" "b" "c") }} => slice true float64 invalid true
        {{ add 1 2 3 }} {{ sub 5 2 }} {{ mul 2 3 }} {{ div 7 2 }} {{ mod 7 2 }} {{ max 1 3 2 }} {{ min 2 1 }} {{ add1 .n }} => 6 3 6 3 1 3 1 4
        {{ .n | int }} {{ int "5" }} {{ float64 1 }} {{ atoi "7" }} {{ ceil 1.2 }} {{ floor 1.8 }} {{ round 1.255 2 }} {{ addf 1.5 2 }} => 3 5 1 7 2 1 1.25 3.5
        {{ eq (int .n) 3 }} {{ ge (.n | int) 2 }} => true true
        "##,
    );
}

#[test]
fn encodings_are_there() {
    check(
        r##"
        {{ toJson .map }} {{ toJson "<a&b>" }} {{ toRawJson "<a>" }} {{ toJson .big }} {{ toJson .half }} => {"a":1,"b":{"c":"d"}} "\u003ca\u0026b\u003e" "<a>" 1000000 0.5
        {{ (fromJson "{\"a\":[1,2]}").a }} {{ (fromYaml "a: [1, x]").a }} => [1 2] [1 x]
        {{ toYaml .map }} => a: 1\nb:\n  c: d
        {{ b64enc "hi" }} {{ b64dec "aGk=" }} {{ sha256sum "" | trunc 8 }} {{ adler32sum "abc" }} => aGk= hi e3b0c442 38600999
        {{ toPrettyJson (dict "a" 1) }} => {\n  "a": 1\n}
        "##,
    );
}

fn strict(template: &str, data: &Json) -> Result<String, String> {
    let template = Template::parse("deploy", template).map_err(|error| error.to_string())?;
    template.render(data, &Options::default()).map_err(|error| error.to_string())
}

#[test]
fn a_missing_key_is_told_by_its_name_where_it_would_be_printed() {
    let told = |template: &str| strict(template, &data()).unwrap_err();
    assert_eq!(told("a\n{{ .nope }}"), "template \"deploy\", line 2: the key \".nope\" is not set");
    assert_eq!(told("{{ .map.nope }}"), "template \"deploy\", line 1: the key \".map.nope\" is not set");
    assert_eq!(told("{{ .nul }}"), "template \"deploy\", line 1: the key \".nul\" is not set");
    assert_eq!(told("{{ $x := .map.nope }}\n{{ $x }}"), "template \"deploy\", line 2: the key \".map.nope\" is not set");
    assert_eq!(told("{{ index .map \"zz\" }}"), "template \"deploy\", line 1: the key \"zz\" is not set");
    assert_eq!(
        told("{{ .nope.deeper }}"),
        "template \"deploy\", line 1: .nope.deeper: \"deeper\" is sought in nothing (\".nope.deeper\" is not set)"
    );
    assert_eq!(told("{{ printf \"%s\" .nope }}"), "template \"deploy\", line 1: printf: the key \".nope\" is not set");
    assert_eq!(
        told("{{ .nope | upper }}"),
        "template \"deploy\", line 1: upper: argument 1 must be a string, and is nothing (\".nope\" is not set)"
    );
}

#[test]
fn a_missing_key_may_be_asked_about() {
    let template = "{{ if .nope }}a{{ else }}b{{ end }}{{ default \"c\" .nope }}{{ with .nope }}{{ end }}{{ range .nope }}{{ end }}";
    assert_eq!(strict(template, &data()), Ok("bc".into()));
    assert_eq!(strict("{{ quote .nope }}{{ hasKey .map \"x\" }}{{ printf \"%v\" nil }}", &data()), Ok("false<nil>".into()));
}

#[test]
fn errors_name_the_template_the_line_and_the_function() {
    let told = |template: &str| strict(template, &data()).unwrap_err();
    assert_eq!(
        told("a\n\n{{ now }}"),
        "template \"deploy\", line 3: the function \"now\" is refused: rendering must give the same each time, so there is no clock"
    );
    for refused in ["uuidv4", "randAlpha 3", "env \"HOME\"", "getHostByName \"x\"", "genCA \"x\" 1", "getResource .cd"] {
        assert!(told(&format!("{{{{ {refused} }}}}")).contains("is refused"), "{refused}");
    }
    assert_eq!(told("\n{{ fail \"no luck\" }}"), "template \"deploy\", line 2: fail: no luck");
    assert_eq!(told("{{ b64dec \"%\" }}").split(": ").nth(1), Some("b64dec"));
    assert_eq!(told("{{ upper 1 2 }}"), "template \"deploy\", line 1: upper takes at most 1 arguments, and got 2");
    assert_eq!(told("{{ if .t }}\n{{ .list.x }}{{ end }}").split(": ").next(), Some("template \"deploy\", line 2"));
}

#[test]
fn files_of_the_blueprint_are_read_and_included() {
    let files = Filesystem(
        json!({"blueprint.yaml": "", "data": {"config": "v: {{ .v }}\n{{ .nope }}", "good": "v: {{ .v }}"}}).as_object().unwrap().clone(),
    );
    let options = Options { files: Some(&files), ..Options::default() };
    let render = |text: &str| Template::parse("deploy", text).unwrap().render(&json!({"v": 1}), &options);
    assert_eq!(render("{{ include \"data/good\" . | indent 2 }}").unwrap(), "  v: 1");
    assert_eq!(render("{{ readFile \"/data/good\" }}").unwrap(), "v: {{ .v }}");
    assert_eq!(render("{{ range readDir \"data\" }}{{ .Name }} {{ end }}").unwrap(), "config good ");
    assert_eq!(render("{{ define \"a\" }}<{{ . }}>{{ end }}{{ include \"a\" 1 | upper }}").unwrap(), "<1>");
    assert_eq!(
        render("\n\n{{ include \"data/config\" . }}").unwrap_err().to_string(),
        "template \"data/config\", line 2: the key \".nope\" is not set"
    );
    assert!(render("{{ readFile \"nope\" }}").unwrap_err().to_string().contains("no file \"nope\""));
}

#[test]
fn what_never_ends_is_stopped() {
    let stopped = |template: &str| {
        let (_, error) = attempt(template, &data(), &GO);
        let error = error.unwrap_or_else(|| panic!("{template} was rendered"));
        assert!(error.limit, "{template}: {error}");
        error.to_string()
    };
    assert!(stopped("{{ range 10000000000 }}{{ end }}").contains("steps"));
    assert!(stopped("{{ range until 2000 }}{{ range until 2000 }}{{ end }}{{ end }}").contains("steps"));
    assert!(stopped("{{ range 100000 }}0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789{{ end }}").contains("bytes"));
    assert!(stopped("{{ repeat 100000000 \"x\" }}").contains("bytes"));
    assert!(stopped("{{ indent 1000000000 .multi }}").contains("bytes"));
    assert!(stopped("{{ define \"x\" }}{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}").contains("deep"));
    stopped("{{ define \"x\" }}{{ template \"x\" . }}{{ template \"x\" . }}{{ end }}{{ template \"x\" . }}");
    stopped("{{ define \"x\" }}{{ include \"x\" . }}{{ end }}{{ template \"x\" . }}");
    stopped("{{ $x := \"ab\" }}{{ range 100 }}{{ $x = printf \"%s%s\" $x $x }}{{ end }}");
    stopped("{{ $x := list 1 }}{{ range 100 }}{{ $x = list $x $x }}{{ end }}{{ $x }}");
    stopped("{{ $x := list 1 }}{{ range 60 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}");
    stopped("{{ $x := list 1 }}{{ range 60 }}{{ $x = concat $x $x }}{{ end }}");
    stopped("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ $d }}");
    stopped("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ toYaml $d }}");
    stopped("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ deepCopy $d }}");
    stopped("{{ $d := dict }}{{ $e := dict }}{{ $_ := set $d \"d\" $d }}{{ $_ := set $e \"d\" $e }}{{ deepEqual $d $e }}");
    stopped("{{ range 100000 }}{{ printf \"%1000000d\" 1 }}{{ end }}");
    stopped("{{ $x := \"a\" }}{{ range 100 }}{{ $x = replace \"a\" \"aa\" $x }}{{ end }}");
    stopped("{{ $x := \"a\" }}{{ range 100 }}{{ $x = regexReplaceAll \"a\" $x \"aa\" }}{{ end }}");
    stopped("{{ range 1000000 }}{{ regexMatch \"a\" \"b\" }}{{ end }}");
    stopped(&format!("{}1{}", "{{ if true }}".repeat(200), "{{ end }}".repeat(200)));
    stopped(&format!("{{{{ {}1{} }}}}", "(".repeat(500), ")".repeat(500)));
    stopped(&format!("{{{{ if true }}}}{}{{{{ end }}}}", "{{ else if true }}".repeat(500)));
}

#[test]
fn a_long_chain_of_values_neither_overflows_nor_leaks_the_stack() {
    let deep_list = "{{ $x := list }}{{ range 100000 }}{{ $x = list $x }}{{ end }}done";
    assert_eq!(go(deep_list), "done");
    let deep_map = "{{ $d := dict }}{{ $c := $d }}{{ range 100000 }}{{ $n := dict }}{{ $_ := set $c \"n\" $n }}{{ $c = $n }}{{ end }}done";
    assert_eq!(go(deep_map), "done");
}

#[test]
fn the_deepest_template_fits_a_small_stack() {
    let body = |inner: &str| format!("{}{inner}{}", "{{ if true }}".repeat(45), "{{ end }}".repeat(45));
    let text = format!("{{{{ define \"x\" }}}}{}{{{{ end }}}}{{{{ template \"x\" . }}}}", body("{{ template \"x\" . }}"));
    let thread = std::thread::Builder::new().stack_size(1024 * 1024);
    let rendered = thread.spawn(move || attempt(&text, &data(), &GO).1.unwrap().limit).unwrap();
    assert!(rendered.join().unwrap());
}

#[test]
fn ten_thousand_items_are_rendered_within_the_limits() {
    let template = "deployItems:\n{{ range $i, $e := until 10000 }}- name: item-{{ $i }}\n  type: {{ $.s }}\n  config:\n{{ toYaml $.map | indent 4 }}\n{{ end }}";
    assert!(go(template).contains("- name: item-9999\n"));
}

/// Pieces of templates, to be put together in any order.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{{", "}}", "{{-", "-}}", " ", "\n", "-", "if", "else", "end", "range", "with", "define", "template", "block", "break",
        "continue", "nil", "true", "$", "$x", ":=", "=", ",", "|", "(", ")", ".", ".a", ".list", ".map.b", "\"s\"", "`r`", "'c'",
        "1", "-1", "0x", "1e9", "1.5", "printf", "\"%[1]*.*d%x\"", "index", "slice", "len", "dict", "set", "list", "toYaml",
        "include", "\"t\"", "eq", "and", "repeat", "99", "substr", "/*", "*/", "é", "\\", "\"", "'", "`", "add", "round", "until",
        "merge", "fromJson", "trunc", "regexFind", "splitn", "dig", "quote", "indent", "{{ end }}", "{{ range .list }}", "{{ . }}",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(" "))
}

/// Calls of every function with odd arguments.
fn calls() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = funcs::names().collect();
    let argument = prop::sample::select(vec![
        ".list", ".map", ".s", ".n", ".nul", ".nope", "nil", "\"\"", "\"é\"", "\"a,b\"", "-1", "0", "1", "3", "9223372036854775807",
        "-9223372036854775808", "1.5", "1e308", "true", "(list)", "(dict)", ".uni", "\"%v%d\"", "\"(\"",
    ]);
    (prop::sample::select(names), prop::collection::vec(argument, 0..5))
        .prop_map(|(name, arguments)| format!("{{{{ {name} {} }}}}", arguments.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}|[{}\\-. $|()a\"`'/*0-9xe_\\\\\\n]{0,40}") {
        let _ = attempt(&text, &data(), &GO);
        let _ = attempt(&format!("{{{{{text}}}}}"), &data(), &GO);
    }

    #[test]
    fn no_template_makes_anything_panic(text in soup()) {
        let limits = Limits { steps: 10_000, output_bytes: 100_000, memory_bytes: 1_000_000, depth: 50 };
        for missing_key in [MissingKey::Refuse, MissingKey::Zero] {
            let options = Options { limits, missing_key, files: None };
            let _ = attempt(&text, &data(), &options);
            let _ = attempt(&format!("{{{{ {text} }}}}"), &data(), &options);
        }
    }

    #[test]
    fn no_function_panics_whatever_it_is_given(text in calls()) {
        let limits = Limits { steps: 100_000, output_bytes: 1_000_000, memory_bytes: 1_000_000, depth: 50 };
        let (_, error) = attempt(&text, &data(), &Options { limits, missing_key: MissingKey::Zero, files: None });
        prop_assert!(error.is_none_or(|error| error.stage == Stage::Execute), "{}", text);
    }
}
