//! Lines through the windows of calibration sessions.

use model::CalibrationWindow;
use serde_json::json;
use units::*;

use super::super::calibrate::fit;
use super::config;

fn window(injected_us: f64, ios: u64, mean_us: f64, last: bool) -> CalibrationWindow {
    CalibrationWindow {
        wanted_us: injected_us,
        injected_us,
        duration: Nanos::from_secs(1),
        reads: ios,
        writes: 0,
        read_mean_us: mean_us,
        write_mean_us: 0.0,
        device: DeviceId(1),
        last,
    }
}

#[test]
fn invalid_calibration_windows_are_excluded() {
    let (config, switches) = config(json!({}));
    let fit = |windows: &[CalibrationWindow]| fit(&config.calibration, &switches, windows);
    let good = [
        window(0.0, 1000, 100.0, false),
        window(50.0, 900, 140.0, false),
        window(0.0, 1000, 100.0, false),
        window(100.0, 800, 180.0, false),
        window(0.0, 1000, 100.0, true),
    ];
    let s = fit(&good).expect("a line");
    assert!(
        (s.joint.slope - 0.8).abs() < 1e-9 && s.windows == 5,
        "{s:?}"
    );
    assert!((s.rate_response - 0.8).abs() < 1e-9);
    // Too few requests: the window at 100 us is dropped, and the line goes through the other windows.
    let mut few = good;
    few[3].reads = 99;
    assert_eq!(fit(&few).unwrap().windows, 4);
    // The load changed around the window: the controls show it, not the injected window itself.
    let mut unsteady = good;
    unsteady[4].reads = 2000;
    assert_eq!(fit(&unsteady).unwrap().windows, 4);
    let mut slow = good;
    slow[3].reads = 300;
    assert_eq!(
        fit(&slow).unwrap().windows,
        5,
        "a closed loop slows down: that is the signal"
    );
    // One level gives no line, and no windows give none.
    assert!(fit(&good[..1]).is_none());
    assert!(fit(&[]).is_none());
}

/// Live timers are late: windows are grouped by wanted latency, and the line is over injected latency.
#[test]
fn late_timers_shift_points_and_do_not_split_levels() {
    let late = |wanted_us: f64, late_us: f64, last: bool| {
        // 0.8 of the injected latency.
        let mean_us = 100.0 + 0.8 * (wanted_us + late_us);
        CalibrationWindow {
            injected_us: wanted_us + late_us,
            ..window(wanted_us, 1000, mean_us, last)
        }
    };
    let windows = [
        late(0.0, 0.0, false),
        late(50.0, 10.0, false),
        late(0.0, 2.0, false), // still a control
        late(50.0, 20.0, false),
        late(0.0, 0.0, true),
    ];
    for form in ["literal", "corrected"] {
        let (config, switches) = config(json!({ "form": form }));
        let s = fit(&config.calibration, &switches, &windows).expect("a line");
        assert_eq!(s.windows, 5, "{form}");
        assert!((s.joint.slope - 0.8).abs() < 1e-9, "{form} {s:?}");
        assert!((s.joint.intercept - 100.0).abs() < 1e-9, "{form} {s:?}");
    }
    // Three windows of a level that three does not divide: rounding must not lose a part.
    let punctual: Vec<CalibrationWindow> = [0.0, 0.1, 0.1, 0.1, 0.0]
        .map(|us| window(us, 1000, 100.0 + us, false))
        .into();
    let (config, switches) = config(json!({ "form": "literal" }));
    let s = fit(&config.calibration, &switches, &punctual).expect("a line");
    let exact = algo::fit_line(&[(0.0, 100.0), (0.1, punctual[1].read_mean_us)]).unwrap();
    assert_eq!(s.joint.sxx, exact.sxx);
}
