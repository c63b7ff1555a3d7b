module github.com/tenure-project/tenure/bench

go 1.26

require (
	github.com/tenure-project/tenure v0.0.0
	github.com/tenure-project/tenure/store/sqlstore v0.0.0
)

replace github.com/tenure-project/tenure => ../

replace github.com/tenure-project/tenure/store/sqlstore => ../store/sqlstore
