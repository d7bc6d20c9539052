use pawl_sim::campaign::{self, Simulator};
use pawl_sim::mutant::{self, Guards};
use pawl_sim::scenarios;
#[test]
#[ignore]
fn scratch() {
    let names = std::env::var("SIM").unwrap_or_default();
    let range = std::env::var("SEEDS").unwrap_or("1-20".into());
    let (a, b) = range.split_once('-').unwrap();
    let (a, b): (u64, u64) = (a.parse().unwrap(), b.parse().unwrap());
    let simulator = if std::env::var("OUTER").is_ok() { Simulator::Outer } else { Simulator::Inner };
    let mutant = std::env::var("MUTANT").ok();
    let trace = std::env::var("TRACE").is_ok();
    for s in scenarios::all().into_iter().filter(|s| {
        names
            .split(',')
            .any(|n| n == s.name || (n.ends_with('*') && s.name.starts_with(n.trim_end_matches('*'))))
    }) {
        let guards = mutant
            .as_ref()
            .map_or(Guards::default(), |m| (mutant::ALL.iter().find(|x| x.name == m).unwrap().guards)());
        let r = campaign::seeds(simulator, &s, a..=b, guards, false);
        println!(
            "{} {} runs {:.1}/s {}",
            s.name,
            r.runs,
            r.runs_per_second(),
            r.failure.as_ref().map(|f| f.to_string()).unwrap_or("ok".into())
        );
        if trace {
            if let Some(f) = r.failure {
                println!("{}", f.trace.join("\n"));
            }
        }
    }
}
