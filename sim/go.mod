module github.com/tenure-project/tenure/sim

go 1.26.0

require github.com/tenure-project/tenure v0.0.0

require github.com/tenure-project/tenure/store/sqlstore v0.0.0

require (
	github.com/anishathalye/porcupine v1.3.1
	go.uber.org/goleak v1.3.0
)

replace github.com/tenure-project/tenure => ..

replace github.com/tenure-project/tenure/store/sqlstore => ../store/sqlstore
