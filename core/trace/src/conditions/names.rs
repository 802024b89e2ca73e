//! Conditions by name: `A`, `B-1h` to `G-not-move`.

use super::{Condition, Cycle, Slice, StandIn};

/// Name, locality, mean requests per second and first hour of the six slices (paper 1, table 1; the localities of C to G are
/// assumed).
const SLICES: [(&str, f64, f64, u32); 6] = [
    ("B", 10.0, 78.0, 0),
    ("C", 8.5, 64.0, 22),
    ("D", 7.0, 76.0, 14),
    ("E", 6.0, 73.0, 12),
    ("F", 5.0, 80.0, 11),
    ("G", 4.0, 85.0, 10),
];

/// Returns all 31 names: A, then B to G, each with the cycles 1h, 3h, 6h, 12h and not-move.
pub fn condition_names() -> Vec<String> {
    let slices = SLICES.iter().flat_map(|(letter, ..)| {
        Cycle::ALL
            .iter()
            .map(move |cycle| format!("{letter}-{}", cycle.name()))
    });
    std::iter::once("A".to_string()).chain(slices).collect()
}

/// Returns the condition of a name, with defaults for all unpublished properties. In addition to the 31 there are `A2`
/// and `A3`, the other two stand-ins for condition A.
pub fn condition(name: &str) -> Option<Condition> {
    match name {
        "A" => return Some(Condition::StandIn(StandIn::first())),
        "A2" => return Some(Condition::StandIn(StandIn::second())),
        "A3" => return Some(Condition::StandIn(StandIn::third())),
        _ => {}
    }
    let (letter, cycle) = name.split_once('-')?;
    let (_, k, iops, start_hour) = SLICES.iter().find(|s| s.0 == letter)?;
    let cycle = Cycle::ALL.into_iter().find(|c| c.name() == cycle)?;
    Some(Condition::Slice(Slice {
        start_hour: *start_hour,
        ..Slice::new(*k, *iops, cycle)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_31_with_known_names() {
        let names = condition_names();
        assert_eq!(names.len(), 31);
        assert!(names.iter().all(|n| condition(n).is_some()));
        let Some(Condition::Slice(slice)) = condition("G-3h") else {
            panic!("G-3h is a slice")
        };
        assert_eq!(
            (slice.k, slice.iops, slice.cycle, slice.start_hour),
            (4.0, 85.0, Cycle::Hours3, 10)
        );
        for not_one in ["H-1h", "B", "B-2h", "a"] {
            assert_eq!(condition(not_one), None, "{not_one}");
        }
    }
}
