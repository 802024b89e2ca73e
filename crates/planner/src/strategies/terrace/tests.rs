use super::rates::RATES;

#[test]
fn a_miss_is_worth_more_than_any_speed_and_regret_is_asked_for() {
    assert!(RATES.faster < 0.05 && RATES.free < 0.5 && RATES.regret >= 1.0);
}
